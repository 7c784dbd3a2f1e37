//! The command line as those meet it who come to it: what it says, what it writes, and with which status it ends.

use serde_json::Value;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn catcache(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_catcache"));
    command.args(words).stdin(Stdio::null());
    command
}

/// Runs it: its status and all that it says.
fn said(words: &[&str]) -> (Option<i32>, String) {
    told(catcache(words).output().expect("the program runs"))
}

fn told(output: Output) -> (Option<i32>, String) {
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).expect("it speaks UTF-8"))
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("the report was written")).expect("it is JSON")
}

fn path(folder: &tempfile::TempDir, name: &str) -> String {
    folder.path().join(name).to_str().expect("a temporary folder has a plain name").to_owned()
}

/// Four backends with more states than a search looks at.
const LARGE: &str = "# A1: too much for a search.\nlayer backend\nkeys k = a/1, l = a/2, m = a/3, n = a/4\n\
    backend a: begin; update k; lookup l; commit; lookup k; lookup m; accept; lookup n\n\
    backend b: begin; update l; lookup k; commit; lookup l; lookup m; accept; lookup n\n\
    backend c: begin; update m; lookup k; commit; lookup l; lookup m; accept; lookup n\n\
    backend d: lookup k; lookup l; accept; lookup k; lookup l; lookup m; lookup n; accept\n";

#[test]
fn an_allowed_outcome_is_explained_by_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let (report, svg) = (path(&folder, "report.json"), path(&folder, "run.svg"));
    let outcome = "loader: v0   writer: v1 after writer";
    let words = ["conform", "d01-late-publication", "--explain", outcome, "--json", &report, "--svg", &svg];
    let (status, text) = said(&words);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("allowed: the model can end so"), "{text}");
    assert!(text.contains(&format!("ends with  {outcome}")), "{text}");
    let report = json(report.as_ref());
    assert_eq!((&report["file"], &report["outcome"]), (&"d01-late-publication".into(), &outcome.into()));
    assert_eq!((&report["allowed"], &report["fault"]), (&true.into(), &Value::Null));
    let steps = report["steps"].as_array().unwrap();
    assert_eq!((&steps[0]["step"], steps[0]["operation"].is_string()), (&"Accept".into(), true), "{}", steps[0]);
    assert!(steps.iter().any(|s| s["backend"] == "writer" && s["answer"] == "k1 = v1"), "{steps:?}");
    assert!(std::fs::read_to_string(svg).unwrap().starts_with("<svg xmlns="));
}

#[test]
fn a_forbidden_outcome_is_explained_by_the_rules_that_forbid_it() {
    let folder = tempfile::tempdir().unwrap();
    let report = path(&folder, "report.json");
    let words = ["conform", "a24-uncommitted-stays-private", "--explain", "never reader = v1", "--json", &report];
    let (status, text) = said(&words);
    assert_eq!(status, Some(0), "{text}");
    for part in ["forbidden: no run", "DirtyNotConsultedAtPublish", "Own uncommitted rows are published", "breaks I1"] {
        assert!(text.contains(part), "`{part}` is not in\n{text}");
    }
    let report = json(report.as_ref());
    assert_eq!((&report["allowed"], &report["fault"]), (&false.into(), &"DirtyNotConsultedAtPublish".into()));
    assert_eq!(report["faults"].as_array().unwrap().len(), 1);
    assert_eq!(report["steps"].as_array().unwrap().len() as u64, report["faults"][0]["steps"].as_u64().unwrap());
    let (status, text) = said(&["conform", "a26-two-deep", "--explain", "reader = v1"]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("No single broken rule"), "{text}");
}

#[test]
fn what_is_no_outcome_is_answered_by_what_one_looks_like() {
    for outcome in ["", "readr = v0", "loader: v0, v0", "loader = v7"] {
        let (status, text) = said(&["conform", "d01-late-publication", "--explain", outcome]);
        assert_eq!(status, Some(2), "{outcome}: {text}");
        assert!(text.contains("  loader: v0   writer: v1 after writer\n"), "{outcome}: {text}");
        assert!(text.contains("  writer.1 = v0"), "{outcome}: {text}");
    }
    let (status, text) = said(&["conform", "--explain", "loader = v0"]);
    assert_eq!(status, Some(2), "{text}");
    let (status, text) = said(&["conform", "d01-late-publication", "a26-two-deep", "--explain", "loader = v0"]);
    assert!(status == Some(2) && text.contains("one litmus file"), "{text}");
}

#[test]
fn a_file_that_is_not_shipped_is_treated_like_one_that_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(&folder, "mine.litmus");
    // As an editor of another system may save it.
    let text = "\u{feff}# A1: mine.\r\nlayer backend\r\nkeys k = a/1\r\nbackend r: lookup k\r\n";
    std::fs::write(&file, text).unwrap();
    let (status, text) = said(&["conform", &file, "--explain", "r = v0"]);
    assert!(status == Some(0) && text.contains("ends with  r: v0"), "{text}");
    // One backend alone is a program too.
    let (status, text) = said(&["conform", &file]);
    assert!(status == Some(0) && text.contains("litmus files held: 1/1"), "{text}");
    assert!(!text.contains("first"), "loom was done with it: {text}");
}

#[test]
fn a_search_beyond_its_bound_is_a_failure_and_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let (file, report) = (path(&folder, "large.litmus"), path(&folder, "report.json"));
    std::fs::write(&file, LARGE).unwrap();
    let (status, text) = said(&["conform", &file, "--explain", "a.1 = v0", "--json", &report]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("is not known: the search was given up after 200000 states"), "{text}");
    assert!(!text.contains("forbidden"), "{text}");
    let report = json(report.as_ref());
    assert_eq!((&report["allowed"], &report["verdict"]), (&Value::Null, &"undecided".into()));
}

#[test]
fn a_fault_is_named_in_either_way_and_an_unknown_one_is_answered_by_those_that_there_are() {
    let either = ["check", "TokenTooOld", "--fault", "WithdrawLeftOut"];
    for words in [&["check", "--fault", "withdrawleftout", "--fault", "TokenTooOld"][..], &either] {
        let (status, text) = said(words);
        assert_eq!(status, Some(0), "{text}");
        assert!(text.contains("fault WithdrawLeftOut: caught by withdraw: balance"), "{text}");
        assert!(text.contains("fault TokenTooOld: caught by tuple"), "{text}");
        assert!(text.contains("model faults caught: 2/2"), "{text}");
    }
    let (status, text) = said(&["check", "--fault", "TokenTooOld", "--fault", "OpenLeftOff"]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("no fault `OpenLeftOff`; did you mean `OpenLeftOut`?"), "{text}");
    assert!(text.contains("LastReferenceLeaks"), "all of them: {text}");
    // A scope is no fault.
    assert_eq!(said(&["check", "--fault", "tuple"]).0, Some(2));
}

#[test]
fn the_faults_are_listed_with_their_scope_and_what_they_break() {
    let folder = tempfile::tempdir().unwrap();
    let report = path(&folder, "faults.json");
    let (status, text) = said(&["check", "--faults", "--json", &report]);
    assert_eq!(status, Some(0), "{text}");
    let faults = json(report.as_ref())["faults"].as_array().unwrap().clone();
    let slots = catcache_model::lifetime::Fault::ALL.len();
    assert_eq!(faults.len(), catcache_model::coherence::Fault::ALL.len() + slots);
    assert!(faults.iter().any(|f| f["name"] == "OwnLeaks" && f["property"] == "lifetime-no-leak"), "{text}");
    for fault in &faults {
        for field in ["name", "scope", "property", "about"] {
            let shown = fault[field].as_str().unwrap();
            assert!(!shown.is_empty() && text.contains(shown), "{field} of {fault}");
        }
    }
    assert_eq!(said(&["check", "--faults", "tuple"]).0, Some(2));
}

#[test]
fn wrong_names_and_files_are_refused_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let (empty, binary) = (path(&folder, "empty.litmus"), path(&folder, "binary.litmus"));
    File::create(&empty).unwrap();
    std::fs::write(&binary, [0xff, 0x00, 0xfe]).unwrap();
    let (file, one) = ("a26-two-deep", path(&folder, "one"));
    let folder = folder.path().to_str().unwrap();
    for (words, advice) in [
        (vec!["check", "tupel"], "did you mean `tuple`?"),
        (vec!["verify", "--scope", "nope"], "scopes: tuple,"),
        (vec!["explore", "tupl"], "did you mean `tuple`?"),
        (vec!["explore", "--port", "0"], "1..=65535"),
        (vec!["conform", "a01"], "did you mean `a01-accepted-messages-bind`?"),
        (vec!["conform", "nope.litmus"], "shipped: a01-accepted-messages-bind"),
        (vec!["conform", ""], "there is no file ``"),
        (vec!["conform", folder], "Is a directory"),
        (vec!["conform", &empty], "the file is empty"),
        (vec!["conform", &binary], "not UTF-8"),
        (vec!["conform", "/dev/zero"], "more than 65536 bytes"),
        (vec!["conform", file, "--json", "/nonexistent/x.json"], "the report can't be written"),
        (vec!["conform", file, "--explain", "reader = v0", "--svg", "/nonexistent/x"], "the diagram can't be written"),
        (vec!["conform", file, "--explain", "reader = v0", "--svg", &one, "--json", &one], "can't be one file"),
        (vec!["conform", file, "--svg", "x.svg"], "--explain"),
        (vec!["check", "--faults", "--json", folder], "can't be written"),
        (vec!["check", "--faults", "--json", "-"], "goes to a file"),
    ] {
        let (status, text) = said(&words);
        assert_eq!(status, Some(2), "{words:?}: {text}");
        assert!(text.contains(advice), "{words:?}: {text}");
        assert!(!text.contains("panicked"), "{words:?}: {text}");
    }
}

#[test]
fn a_reader_that_has_gone_is_no_failure_and_a_full_disk_is() {
    for words in [&["check", "--faults"][..], &["conform", "a26-two-deep", "--explain", "reader = v0"]] {
        let mut child = catcache(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let (status, text) = told(child.wait_with_output().unwrap());
        assert_eq!((status, text.as_str()), (Some(0), ""), "{words:?}");
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (status, text) = told(catcache(words).stdout(full).output().unwrap());
        assert!(status == Some(2) && text.contains("standard output can't be written"), "{words:?}: {text}");
    }
}

#[test]
fn two_that_write_one_report_leave_one_whole() {
    let folder = tempfile::tempdir().unwrap();
    let report = path(&folder, "report.json");
    let both: Vec<Child> = (0..2)
        .map(|_| catcache(&["check", "withdraw", "--json", &report]).stdout(Stdio::null()).spawn().unwrap())
        .collect();
    for mut child in both {
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    assert_eq!(json(report.as_ref())["verdict"], "held");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "a draft was left behind");
}

#[test]
fn an_interrupt_ends_a_run_without_a_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(&folder, "large.litmus");
    std::fs::write(&file, LARGE).unwrap();
    for (words, left) in [
        (vec!["check", "all-of-two-keys"], "not run: the scopes all-of-two-keys (interrupted)"),
        (vec!["conform", &file, "--explain", "a.1 = v0 and b.1 = v0"], "interrupted; no answer"),
    ] {
        let report = path(&folder, "report.json");
        let words = [words, vec!["--json", &report]].concat();
        let child = catcache(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for_handler(&child);
        let id = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
        let (status, text) = told(child.wait_with_output().unwrap());
        assert_eq!(status, Some(1), "{words:?}: {text}");
        assert!(text.contains(left), "{words:?}: {text}");
        assert_eq!(json(report.as_ref())["verdict"], "interrupted", "{words:?}");
    }
}

/// Waits until a process catches SIGINT: an interrupt that comes before that ends it like any other.
fn wait_for_handler(child: &Child) {
    let status = format!("/proc/{}/status", child.id());
    let catches = || {
        let text = std::fs::read_to_string(&status).unwrap();
        let caught = text.lines().find_map(|l| l.strip_prefix("SigCgt:")).expect("Linux says what a process catches");
        u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << 1 != 0
    };
    while !catches() {
        std::thread::yield_now();
    }
}
