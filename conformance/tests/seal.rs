//! The seal of trust is given for the very code that passed, and every other case is refused with advice.

use catcache_conformance::seal::{Build, Form, Passed, Place, Seal, SealError, digest};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A workspace with one file in each place that counts.
fn workspace() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    for name in digest::FILES {
        fs::write(at(name), name).unwrap();
    }
    for folder in digest::FOLDERS {
        fs::create_dir_all(at(folder).join("src/inner")).unwrap();
        fs::write(at(folder).join("Cargo.toml"), folder).unwrap();
        fs::write(at(folder).join("src/inner/lib.rs"), "fn one() {}\n").unwrap();
    }
    root
}

fn build() -> Build {
    Build { compiler: "rustc 1.95.0".into(), profile: "release".into(), flags: String::new() }
}

/// A binary freshly built from `root`.
fn built(root: &Path) -> Place {
    let folder = root.join("target");
    fs::create_dir_all(&folder).unwrap();
    let digest = digest::digest(root, &build()).unwrap();
    let parts = vec![("under-loom", root.join("impl/under-loom")), ("model", root.join("model"))];
    Place { file: folder.join("seal.json"), root: root.to_owned(), build: build(), digest, parts, asked: None }
}

fn passed() -> Vec<Passed> {
    vec![Passed { what: "edges replayed".into(), done: 8185, of: 8185 }]
}

#[test]
fn what_was_sealed_is_trusted() {
    let root = workspace();
    let place = built(root.path());
    let seal = Seal::at(&place, Form::Full, passed());
    assert_eq!(place.write(&seal).unwrap(), place.file);
    assert_eq!(place.check().unwrap(), seal);
    assert!(seal.to_string().contains("full") && seal.to_string().contains("edges replayed 8185/8185"), "{seal}");
    let left: Vec<_> = fs::read_dir(place.file.parent().unwrap()).unwrap().collect();
    assert_eq!(left.len(), 1, "the draft was left behind: {left:?}");
}

#[test]
fn without_a_record_there_is_no_trust() {
    let root = workspace();
    let place = built(root.path());
    let error = place.check().unwrap_err();
    assert!(matches!(error, SealError::Missing { .. }));
    assert!(error.to_string().contains("cargo run --release -- conform"), "{error}");
    place.write(&Seal::at(&place, Form::Quick, passed())).unwrap();
    place.revoke().unwrap();
    assert!(matches!(place.check(), Err(SealError::Missing { .. })));
    place.revoke().unwrap();
}

/// What is edited, and how.
type Edit = (&'static str, fn(&Path));

#[test]
fn an_edit_breaks_the_seal_before_and_after_the_next_build() {
    let edits: &[Edit] = &[
        ("a changed source", |root| fs::write(root.join("impl/src/inner/lib.rs"), "fn two() {}\n").unwrap()),
        ("a changed benchmark", |root| fs::write(root.join("benches/src/inner/lib.rs"), "").unwrap()),
        ("another lock file", |root| fs::write(root.join("Cargo.lock"), "").unwrap()),
        ("another toolchain", |root| fs::write(root.join("rust-toolchain.toml"), "").unwrap()),
        ("a new litmus file", |root| {
            fs::create_dir(root.join("conformance/litmus")).unwrap();
            fs::write(root.join("conformance/litmus/a.litmus"), "#").unwrap();
        }),
        ("a file less", |root| fs::remove_file(root.join("model/src/inner/lib.rs")).unwrap()),
        ("a file renamed", |root| {
            fs::rename(root.join("model/src/inner/lib.rs"), root.join("model/src/inner/lab.rs")).unwrap();
        }),
        ("bytes moved from one file to the next", |root| {
            fs::write(root.join("model/Cargo.toml"), "modelf").unwrap();
            fs::write(root.join("model/src/inner/lib.rs"), "n one() {}\n").unwrap();
        }),
        ("a folder gone", |root| fs::remove_dir_all(root.join("benches")).unwrap()),
    ];
    for (what, edit) in edits {
        let root = workspace();
        let old = built(root.path());
        old.write(&Seal::at(&old, Form::Full, passed())).unwrap();
        edit(root.path());
        let error = old.check().unwrap_err();
        assert!(matches!(error, SealError::StaleBinary { .. }), "{what}: {error}");
        assert!(error.to_string().contains("edited after this binary was built"), "{what}: {error}");
        if *what == "a folder gone" {
            continue;
        }
        let new = built(root.path());
        let error = new.check().unwrap_err();
        assert!(matches!(error, SealError::OtherCode { .. }), "{what}: {error}");
        assert!(error.to_string().contains(&new.digest[..12]), "{what}: {error}");
    }
}

#[test]
fn the_compiler_and_the_profile_belong_to_the_code() {
    let root = workspace();
    let place = built(root.path());
    place.write(&Seal::at(&place, Form::Full, passed())).unwrap();
    for other in [
        Build { compiler: "rustc 1.96.0".into(), ..build() },
        Build { profile: "debug".into(), ..build() },
        Build { flags: "-Ctarget-cpu=native".into(), ..build() },
        // Framing: what moves from one part to the next is another build.
        Build { compiler: "rustc 1.95.0r".into(), profile: "elease".into(), ..build() },
    ] {
        let digest = digest::digest(root.path(), &other).unwrap();
        let other = Place { build: other, digest, ..place.clone() };
        assert!(matches!(other.check(), Err(SealError::OtherCode { .. })));
    }
}

#[test]
fn a_binary_of_two_checkouts_is_neither_sealed_nor_trusted() {
    let (root, other) = (workspace(), workspace());
    let whole = built(root.path());
    let seal = Seal::at(&whole, Form::Quick, passed());
    whole.write(&seal).unwrap();
    let mixed = Place { parts: vec![("under-loom", other.path().join("impl/under-loom"))], ..whole.clone() };
    let elsewhere = Place { asked: Some(other.path().to_owned()), ..whole.clone() };
    for bad in [mixed, elsewhere] {
        for error in [bad.check().unwrap_err(), bad.write(&seal).unwrap_err()] {
            assert!(matches!(error, SealError::OtherCheckout { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains("target folder") && text.contains(other.path().to_str().unwrap()), "{text}");
        }
    }
    // The same checkout by another name is the same.
    let link = other.path().join("link");
    std::os::unix::fs::symlink(root.path(), &link).unwrap();
    Place { asked: Some(link), ..whole }.check().unwrap();
}

#[test]
fn prose_hidden_files_and_build_products_do_not_count() {
    let root = workspace();
    let place = built(root.path());
    place.write(&Seal::at(&place, Form::Full, passed())).unwrap();
    fs::write(root.path().join("impl/README.md"), "words").unwrap();
    fs::write(root.path().join("impl/.notes"), "words").unwrap();
    fs::create_dir(root.path().join("impl/target")).unwrap();
    fs::write(root.path().join("impl/target/x.rs"), "words").unwrap();
    fs::write(root.path().join("notes.txt"), "words").unwrap();
    place.check().unwrap();
}

#[test]
fn a_binary_whose_sources_are_gone_is_judged_by_its_record() {
    let root = workspace();
    let outside = tempfile::tempdir().unwrap();
    let mut place = built(root.path());
    place.file = outside.path().join("seal.json");
    place.write(&Seal::at(&place, Form::Full, passed())).unwrap();
    drop(root);
    place.check().unwrap();
}

#[test]
fn a_damaged_or_unreadable_record_is_told_from_a_missing_one() {
    let root = workspace();
    let place = built(root.path());
    let seal = Seal::at(&place, Form::Full, passed());
    place.write(&seal).unwrap();
    let whole = fs::read_to_string(&place.file).unwrap();
    for damaged in ["", "{", &whole[..whole.len() / 2], &whole.replace("digest", "digits"), "\u{0}\u{1}"] {
        fs::write(&place.file, damaged).unwrap();
        let error = place.check().unwrap_err();
        assert!(matches!(error, SealError::Corrupt { .. }), "{damaged:?}: {error}");
        assert!(error.to_string().contains("Remove it"), "{error}");
    }
    fs::remove_file(&place.file).unwrap();
    fs::create_dir(&place.file).unwrap();
    let error = place.check().unwrap_err();
    assert!(matches!(error, SealError::Io { what: "read", .. }), "{error}");
    assert!(matches!(place.write(&seal), Err(SealError::Io { what: "write", .. })));
    assert!(matches!(place.revoke(), Err(SealError::Io { what: "remove", .. })));
}

#[test]
fn a_quick_run_does_not_take_away_what_a_full_one_has_shown() {
    let root = workspace();
    let place = built(root.path());
    let (full, quick) = (Seal::at(&place, Form::Full, passed()), Seal::at(&place, Form::Quick, vec![]));
    place.write(&full).unwrap();
    place.write(&quick).unwrap();
    assert_eq!(place.check().unwrap().form, Form::Full);
    // But of other code it says nothing.
    fs::write(root.path().join("Cargo.lock"), "new").unwrap();
    let place = built(root.path());
    place.write(&Seal::at(&place, Form::Quick, vec![])).unwrap();
    assert_eq!(place.check().unwrap().form, Form::Quick);
}

#[test]
fn this_very_binary_knows_its_place() {
    let here = Place::here();
    let exe = std::env::current_exe().unwrap();
    assert!(exe.starts_with(here.file.parent().unwrap()), "{} is not beside {}", here.file.display(), exe.display());
    assert_eq!(here.digest.len(), 64);
    assert!(here.root.join("conformance/build.rs").exists());
    here.of_one_checkout().unwrap();
    assert_eq!(here.asked.as_deref(), Some(here.root.as_path()), "cargo says for whom it runs this test");
    // The sources may have been edited since this test was built; then, and only then, the digests differ.
    match here.check() {
        Ok(seal) => assert_eq!(seal.digest, here.digest),
        Err(SealError::StaleBinary { .. } | SealError::Missing { .. } | SealError::OtherCode { .. }) => {}
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn all_sources_of_this_workspace_count() {
    let names = digest::sources(&Place::here().root).unwrap();
    for expected in [
        "Cargo.lock",
        "benches/src/main.rs",
        "conformance/build.rs",
        "conformance/litmus/b01-stale-after-toast.litmus",
        "impl/src/lib.rs",
        "impl/under-loom/Cargo.toml",
        "impl/under-shuttle/Cargo.toml",
        "model/src/lib.rs",
    ] {
        assert!(names.iter().any(|n| n == expected), "{expected} does not count");
    }
    assert!(names.is_sorted());
}
