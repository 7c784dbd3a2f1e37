//! One digest over everything that a verdict depends on: the sources of the four crates, the lock file, the compiler
//! and how it was asked to compile.
//!
//! Compiled twice, into the build script and into the crate, so that what is compiled in and what is recomputed at run
//! time can't be two different functions.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Folders whose files count, with everything below them.
pub const FOLDERS: [&str; 4] = ["benches", "conformance", "impl", "model"];
/// Files at the root that count.
pub const FILES: [&str; 3] = ["Cargo.lock", "Cargo.toml", "rust-toolchain.toml"];

/// How the sources were compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// Answer of `rustc -vV`.
    pub compiler: String,
    /// Cargo's profile, optimisation level and whether it is the debug build.
    pub profile: String,
    /// Flags that came from outside the manifests.
    pub flags: String,
}

/// The digest of the workspace at `root`, in hexadecimal: every part goes in with its name and its length, so that no
/// two workspaces read alike. Cost: reads all sources once.
///
/// # Errors
/// A folder or file that can't be read; the message names it.
pub fn digest(root: &Path, build: &Build) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut part = |name: &str, bytes: &[u8]| {
        for piece in [name.as_bytes(), bytes] {
            hash.update((piece.len() as u64).to_le_bytes());
            hash.update(piece);
        }
    };
    part("compiler", build.compiler.as_bytes());
    part("profile", build.profile.as_bytes());
    part("flags", build.flags.as_bytes());
    for name in sources(root)? {
        let path = root.join(&name);
        let bytes = std::fs::read(&path).map_err(|e| named(&path, &e))?;
        part(&name, &bytes);
    }
    let mut text = String::with_capacity(64);
    for byte in hash.finalize() {
        write!(text, "{byte:02x}").map_err(io::Error::other)?;
    }
    Ok(text)
}

/// The files that count, relative to `root`, with `/` between folders, sorted. Prose (`.md`), hidden files and folders
/// called `target` don't count.
///
/// # Errors
/// As [`digest`].
pub fn sources(root: &Path) -> io::Result<Vec<String>> {
    let mut found: Vec<String> = FILES.iter().map(|&f| f.to_owned()).collect();
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(PathBuf::from).collect();
    while let Some(folder) = folders.pop() {
        let path = root.join(&folder);
        for entry in std::fs::read_dir(&path).map_err(|e| named(&path, &e))? {
            let entry = entry.map_err(|e| named(&path, &e))?;
            let name = entry.file_name();
            let name = name.to_str().ok_or_else(|| io::Error::other(format!("{name:?} is not UTF-8")))?;
            if name.starts_with('.') || name == "target" || name.ends_with(".md") {
                continue;
            }
            let below = folder.join(name);
            // Follows links: what is compiled is what they point at.
            if std::fs::metadata(root.join(&below)).map_err(|e| named(&below, &e))?.is_dir() {
                folders.push(below);
            } else {
                let parts: Vec<&str> = below.iter().filter_map(|p| p.to_str()).collect();
                found.push(parts.join("/"));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn named(path: &Path, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{}: {e}", path.display()))
}
