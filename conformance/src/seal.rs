//! The seal of trust: a record of what the conformance suite has passed, bound to the very code that passed it.
//!
//! Benchmarks speak only for sealed code. A digest over all sources, the lock file, the compiler and the profile
//! ([`digest`]) is compiled into every binary of the workspace that uses this crate; the record carries the digest of
//! the binary that wrote it, and lies beside the binaries, in the target folder, never in the repository.
//!
//! A check refuses in each of these cases, and says what to do:
//! 1. there is no record: nothing was verified here, or the last run failed;
//! 2. the record can't be read, or isn't one;
//! 3. the record is about other code: the sources were edited and rebuilt since;
//! 4. the binary is stale: the sources on disk are no longer those that it was built from;
//! 5. the binary is not of one checkout: two checkouts shared a target folder, and cargo took for fresh in the second
//!    what it had built for the first (the packages in `impl/under-*` have their sources outside their own folder, which
//!    cargo remembers by absolute path). The digest would then be that of code which was never run.

pub mod digest;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

pub use digest::Build;

/// Name of the record in the folder of the binaries.
pub const FILE: &str = "catcache-seal.json";
/// What to type to get a seal.
pub const ADVICE: &str = "cargo run --release -- conform";

/// How much was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// What fits into minutes.
    Quick,
    /// Everything.
    Full,
}

/// One line of what passed, such as `edges replayed 8185/8185`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed {
    /// What was counted.
    pub what: String,
    /// How many passed.
    pub done: u64,
    /// How many there are.
    pub of: u64,
}

impl fmt::Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.what, self.done, self.of)
    }
}

/// The record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seal {
    /// Of the code that passed.
    pub digest: String,
    /// How much was run.
    pub form: Form,
    /// What passed.
    pub passed: Vec<Passed>,
    /// Seconds since 1970, UTC.
    pub made_at: u64,
}

impl fmt::Display for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = if self.form == Form::Full { "full" } else { "quick" };
        let passed: Vec<String> = self.passed.iter().map(Passed::to_string).collect();
        write!(f, "sealed ({form}, {}): {}", short(&self.digest), passed.join("; "))
    }
}

/// Why there is no trust, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// No record.
    #[error("this code has not been verified: there is no seal at {file}. Run `{ADVICE}`")]
    Missing {
        /// Where it should lie.
        file: String,
    },
    /// A record of other code.
    #[error(
        "the seal at {file} is for other code ({}), this is {}: the sources, the compiler or the profile have changed \
         since. Run `{ADVICE}`",
        short(.sealed),
        short(.own)
    )]
    OtherCode {
        /// The record.
        file: String,
        /// The digest in it.
        sealed: String,
        /// The digest of this binary.
        own: String,
    },
    /// The binary isn't built from what lies on the disk.
    #[error("the sources in {root} were edited after this binary was built. Run it through cargo again: `{ADVICE}`")]
    StaleBinary {
        /// The workspace.
        root: String,
    },
    /// A crate in the binary comes from elsewhere than the rest, or all of it from elsewhere than cargo was asked.
    #[error(
        "{what} in this binary was built from {found}, and not from {root}: two checkouts share one target folder. Run \
         `cargo clean`, or give each its own (CARGO_TARGET_DIR), and then `{ADVICE}`"
    )]
    OtherCheckout {
        /// The package.
        what: &'static str,
        /// Where it was built.
        found: String,
        /// The workspace that it should come from.
        root: String,
    },
    /// The sources are there but can't be read, so nobody knows.
    #[error("can't tell whether this binary is up to date: {source}")]
    Sources {
        /// Which file, and why.
        source: io::Error,
    },
    /// The record can't be read or written.
    #[error("can't {what} the seal {file}: {source}. Put the folder's permissions or space in order")]
    Io {
        /// "read", "write" or "remove".
        what: &'static str,
        /// The record.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// The record isn't one.
    #[error("the seal at {file} is damaged ({source}). Remove it and run `{ADVICE}`")]
    Corrupt {
        /// The record.
        file: String,
        /// What the parser says.
        source: serde_json::Error,
    },
}

/// The first digits, enough to tell two digests apart.
fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

impl Seal {
    /// A seal for this binary, made now.
    pub fn new(form: Form, passed: Vec<Passed>) -> Seal {
        Seal::at(&Place::here(), form, passed)
    }

    /// A seal for the code of `place`, made now.
    pub fn at(place: &Place, form: Form, passed: Vec<Passed>) -> Seal {
        // A clock before 1970 is no reason to fail: the time is for people, nothing depends on it.
        let made_at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        Seal { digest: place.digest.clone(), form, passed, made_at }
    }

    /// Writes the record of this binary; see [`Place::write`].
    ///
    /// # Errors
    /// As [`Place::write`].
    pub fn write(&self) -> Result<PathBuf, SealError> {
        Place::here().write(self)
    }

    /// The record of this binary; see [`Place::check`].
    ///
    /// # Errors
    /// As [`Place::check`].
    pub fn check() -> Result<Seal, SealError> {
        Place::here().check()
    }

    /// Removes the record of this binary, because a run has failed; see [`Place::revoke`].
    ///
    /// # Errors
    /// As [`Place::revoke`].
    pub fn revoke() -> Result<(), SealError> {
        Place::here().revoke()
    }
}

/// Where a record lies, and what it must be bound to.
#[derive(Clone, Debug)]
pub struct Place {
    /// The record.
    pub file: PathBuf,
    /// The workspace; it may be gone, then nobody can have edited it.
    pub root: PathBuf,
    /// How this binary was compiled.
    pub build: Build,
    /// What was compiled in.
    pub digest: String,
    /// The crates that the verdict is about, and the package folders that they were compiled in.
    pub parts: Vec<(&'static str, PathBuf)>,
    /// The workspace for which cargo runs this binary, if cargo does.
    pub asked: Option<PathBuf>,
}

impl Place {
    /// That of the running binary.
    pub fn here() -> Place {
        let parts = [
            ("catcache-model", catcache_model::BUILT_IN),
            ("shared-catcache", shared_catcache::BUILT_IN),
            ("shared-catcache-under-shuttle", shared_catcache_under_shuttle::BUILT_IN),
            ("shared-catcache-under-loom", shared_catcache_under_loom::BUILT_IN),
        ];
        let build = Build {
            compiler: env!("CATCACHE_COMPILER").to_owned(),
            profile: env!("CATCACHE_PROFILE").to_owned(),
            flags: env!("CATCACHE_FLAGS").to_owned(),
        };
        let exe = std::env::current_exe().ok();
        let folder = exe.as_deref().and_then(folder_of).unwrap_or_else(|| env!("CATCACHE_PROFILE_FOLDER").into());
        Place {
            file: folder.join(FILE),
            root: env!("CATCACHE_ROOT").into(),
            build,
            digest: env!("CATCACHE_DIGEST").to_owned(),
            parts: parts.map(|(name, folder)| (name, folder.into())).into(),
            asked: std::env::var_os("CARGO_MANIFEST_DIR").and_then(|package| workspace_of(Path::new(&package))),
        }
    }

    /// Whether the binary is of one checkout: each crate in it, and that for which cargo runs it.
    ///
    /// # Errors
    /// [`SealError::OtherCheckout`].
    pub fn of_one_checkout(&self) -> Result<(), SealError> {
        let other = |what, found: &Path, root: &Path| {
            let (found, root) = (found.display().to_string(), root.display().to_string());
            Err(SealError::OtherCheckout { what, found, root })
        };
        for (name, folder) in &self.parts {
            if !folder.starts_with(&self.root) {
                return other(name, folder, &self.root);
            }
        }
        match &self.asked {
            Some(asked) if !same(asked, &self.root) => other("catcache-conformance", &self.root, asked),
            _ => Ok(()),
        }
    }

    /// Writes `seal` so that a reader sees the old record or the new one, never half of it. A record of the same code
    /// that says more stays.
    ///
    /// # Errors
    /// The binary is not [of one checkout](Place::of_one_checkout), or the folder can't be written.
    pub fn write(&self, seal: &Seal) -> Result<PathBuf, SealError> {
        self.of_one_checkout()?;
        if let Ok(there) = self.read()
            && there.digest == seal.digest
            && there.form > seal.form
        {
            return Ok(self.file.clone());
        }
        let io = |source| SealError::Io { what: "write", file: self.file.display().to_string(), source };
        let text = serde_json::to_string_pretty(seal).map_err(|e| io(e.into()))?;
        let draft = self.file.with_extension(format!("json.{}", std::process::id()));
        let written = std::fs::write(&draft, text + "\n").and_then(|()| std::fs::rename(&draft, &self.file));
        if let Err(e) = written {
            // The draft is of no use; that it may stay behind is less than the error that is reported.
            std::fs::remove_file(&draft).ok();
            return Err(io(e));
        }
        Ok(self.file.clone())
    }

    /// The record, if it is about this very code and the sources on the disk are this code's.
    ///
    /// # Errors
    /// Each way in which there is no trust; see the module. Cost: reads all sources once.
    pub fn check(&self) -> Result<Seal, SealError> {
        self.of_one_checkout()?;
        self.fresh()?;
        let seal = self.read()?;
        if seal.digest != self.digest {
            let (file, own) = (self.file.display().to_string(), self.digest.clone());
            return Err(SealError::OtherCode { file, sealed: seal.digest, own });
        }
        Ok(seal)
    }

    /// Removes the record; none there is fine.
    ///
    /// # Errors
    /// It is there and can't be removed.
    pub fn revoke(&self) -> Result<(), SealError> {
        match std::fs::remove_file(&self.file) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(SealError::Io { what: "remove", file: self.file.display().to_string(), source: e })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn read(&self) -> Result<Seal, SealError> {
        let file = self.file.display().to_string();
        let bytes = match std::fs::read(&self.file) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(SealError::Missing { file }),
            Err(source) => return Err(SealError::Io { what: "read", file, source }),
            Ok(bytes) => bytes,
        };
        serde_json::from_slice(&bytes).map_err(|source| SealError::Corrupt { file, source })
    }

    /// Whether the sources on the disk are those that were compiled in.
    fn fresh(&self) -> Result<(), SealError> {
        if !self.root.exists() {
            return Ok(());
        }
        match digest::digest(&self.root, &self.build) {
            Ok(now) if now == self.digest => Ok(()),
            // A file or folder that counts has been removed: that is an edit.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(self.stale()),
            Ok(_) => Err(self.stale()),
            Err(source) => Err(SealError::Sources { source }),
        }
    }

    fn stale(&self) -> SealError {
        SealError::StaleBinary { root: self.root.display().to_string() }
    }
}

/// The checkout of this project that the package folder `package` belongs to, if it does.
fn workspace_of(package: &Path) -> Option<PathBuf> {
    let root = package.ancestors().find(|folder| folder.join("conformance/src/seal/digest.rs").exists())?;
    Some(root.to_owned())
}

/// Whether both paths lead to one folder. Where one can't be followed, by their text.
fn same(one: &Path, other: &Path) -> bool {
    one == other || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// The folder of a profile's binaries, if `exe` lies in a target folder of cargo's: `target/release/catcache`,
/// `target/release/deps/…` and `target/release/examples/…` share one.
fn folder_of(exe: &Path) -> Option<PathBuf> {
    let mut folder = exe.parent()?;
    if matches!(folder.file_name().and_then(|n| n.to_str()), Some("deps" | "examples")) {
        folder = folder.parent()?;
    }
    // Cargo marks the target folder, one or (with `--target`) two above.
    let marked = folder.ancestors().skip(1).take(2).any(|f| f.join("CACHEDIR.TAG").exists());
    marked.then(|| folder.to_owned())
}
