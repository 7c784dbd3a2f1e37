//! Compiles in the digest that the seal of trust is bound to, and the litmus files.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

#[path = "src/seal/digest.rs"]
mod digest;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::var("CARGO_MANIFEST_DIR")?;
    let out = std::env::var("OUT_DIR")?;
    let root = Path::new(&folder).parent().ok_or("the crate lies in a workspace")?;
    for name in digest::FOLDERS.iter().chain(&digest::FILES) {
        // Relative: an absolute path would be that of the first checkout which built in this target folder.
        println!("cargo::rerun-if-changed=../{name}");
    }

    let rustc = Command::new(std::env::var("RUSTC")?).arg("-vV").output()?;
    let compiler = String::from_utf8(rustc.stdout)?.lines().collect::<Vec<_>>().join("; ");
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    let profile = format!("{}; opt-level {}; debug {}", var("PROFILE"), var("OPT_LEVEL"), var("DEBUG"));
    // Cargo separates flags by a control character, which would end up in messages.
    let flags = var("CARGO_ENCODED_RUSTFLAGS").replace('\u{1f}', " ");
    let build = digest::Build { compiler, profile, flags };
    println!("cargo::rustc-env=CATCACHE_DIGEST={}", digest::digest(root, &build)?);
    println!("cargo::rustc-env=CATCACHE_COMPILER={}", build.compiler);
    println!("cargo::rustc-env=CATCACHE_PROFILE={}", build.profile);
    println!("cargo::rustc-env=CATCACHE_FLAGS={}", build.flags);
    println!("cargo::rustc-env=CATCACHE_ROOT={}", root.display());
    // <target>/<profile>/build/<package>-<hash>/out
    let profile_folder = Path::new(&out).ancestors().nth(3).ok_or("OUT_DIR lies in the target folder")?;
    println!("cargo::rustc-env=CATCACHE_PROFILE_FOLDER={}", profile_folder.display());

    std::fs::write(Path::new(&out).join("shipped.rs"), shipped(&Path::new(&folder).join("litmus"))?)?;
    Ok(())
}

/// The table of litmus files, as Rust.
fn shipped(folder: &Path) -> Result<String, Box<dyn Error>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "litmus") {
            paths.push(path);
        }
    }
    paths.sort();
    let mut text = String::from("/// Name and text of every file in `conformance/litmus`, sorted by name.\n");
    writeln!(text, "pub static SHIPPED: &[(&str, &str)] = &[")?;
    for path in paths {
        let name = path.file_stem().and_then(|s| s.to_str()).ok_or("a litmus file's name is UTF-8")?;
        let path = path.to_str().ok_or("the path of the workspace is UTF-8")?;
        writeln!(text, "    ({name:?}, include_str!({path:?})),")?;
    }
    writeln!(text, "];")?;
    Ok(text)
}
