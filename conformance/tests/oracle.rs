//! The oracle: each of its checks refuses a history made to break it, and the real cache passes them all.

use catcache_conformance::oracle::{Answer, Check, Event, History, Plan, RunError, Source, Tally, WriteId, run};
use shared_catcache::Rule;

// ---- histories made by hand ---------------------------------------------------------------------------------------

const K: u32 = 1;
const MINE: WriteId = WriteId { backend: 0, serial: 1 };
const ITS: WriteId = WriteId { backend: 1, serial: 1 };
const ITS2: WriteId = WriteId { backend: 1, serial: 2 };
const V0: Answer = Answer::Row(WriteId::FIRST);

fn read(begun: u64, ended: u64, answer: Answer, source: Source) -> Event {
    Event::Read { key: K, begun, ended, answer, source }
}

fn write(write: WriteId) -> Event {
    Event::Write { key: K, write, row: true }
}

fn delete(write: WriteId) -> Event {
    Event::Write { key: K, write, row: false }
}

fn commit(visible: u64, acknowledged: u64) -> Event {
    Event::Commit { visible, acknowledged }
}

fn accept(begun: u64) -> Event {
    Event::Accept { begun }
}

/// Key K has a row at first; backend 0 does `reader`, backend 1 `writer`.
fn history(reader: Vec<Event>, writer: Vec<Event>) -> History {
    History { present: vec![K], backends: vec![reader, writer], quiet: None }
}

/// One commit of a new row, visible at 20, acknowledged at 30.
fn update() -> Vec<Event> {
    vec![accept(5), write(ITS), commit(20, 30)]
}

fn allowed(reader: Vec<Event>, writer: Vec<Event>) -> Tally {
    history(reader, writer).check().unwrap_or_else(|v| panic!("refused: {v}"))
}

fn refused(reader: Vec<Event>, writer: Vec<Event>) -> Check {
    match history(reader, writer).check() {
        Ok(_) => panic!("not refused"),
        Err(violation) => {
            assert!(!violation.to_string().is_empty());
            violation.check
        }
    }
}

fn row(write: WriteId) -> Answer {
    Answer::Row(write)
}

#[test]
fn a_row_that_nobody_wrote_is_foreign() {
    let torn = Answer::Foreign("torn".into());
    assert_eq!(refused(vec![read(1, 2, torn, Source::Shared)], vec![]), Check::Foreign);
    assert_eq!(refused(vec![read(1, 2, row(ITS2), Source::Fresh)], update()), Check::Foreign);
    let other = Event::Write { key: 2, write: ITS, row: true };
    assert_eq!(refused(vec![read(40, 41, row(ITS), Source::Fresh)], vec![other, commit(20, 30)]), Check::Foreign);
    // There is no row at first: nobody can have read it.
    let absent = History { present: vec![], backends: vec![vec![read(1, 2, V0, Source::Fresh)]], quiet: None };
    assert_eq!(absent.check().unwrap_err().check, Check::Foreign);
}

#[test]
fn own_changes_show_after_the_command_and_not_before() {
    let mine = |events: &[Event]| [&[write(MINE)], events].concat();
    allowed(mine(&[read(1, 2, V0, Source::Fresh), Event::CommandEnd, read(3, 4, row(MINE), Source::Fresh)]), vec![]);
    assert_eq!(refused(mine(&[read(1, 2, row(MINE), Source::Fresh)]), vec![]), Check::OwnChanges);
    assert_eq!(refused(mine(&[Event::CommandEnd, read(1, 2, V0, Source::Shared)]), vec![]), Check::OwnChanges);
    assert_eq!(refused(mine(&[Event::CommandEnd, read(1, 2, Answer::None, Source::Fresh)]), vec![]), Check::OwnChanges);
    // A deletion hides the row from its own transaction (D8).
    let hidden = vec![delete(MINE), Event::CommandEnd, read(1, 2, V0, Source::Shared)];
    assert_eq!(refused(hidden, vec![]), Check::OwnChanges);
    // The second command's row counts when it has ended.
    let second = |last: Answer| {
        let again = WriteId { serial: 2, ..MINE };
        let first = vec![write(MINE), Event::CommandEnd, write(again), read(1, 2, row(MINE), Source::Fresh)];
        [first, vec![Event::CommandEnd, read(3, 4, last, Source::Fresh)]].concat()
    };
    allowed(second(row(WriteId { serial: 2, ..MINE })), vec![]);
    assert_eq!(refused(second(row(MINE)), vec![]), Check::OwnChanges);
}

#[test]
fn nothing_uncommitted_is_read() {
    let with = |end: Event| vec![write(ITS), Event::CommandEnd, end];
    allowed(vec![read(10, 25, row(ITS), Source::Fresh)], with(commit(20, 30)));
    assert_eq!(refused(vec![read(10, 15, row(ITS), Source::Shared)], with(commit(20, 30))), Check::DirtyRead);
    assert_eq!(refused(vec![read(40, 41, row(ITS), Source::Shared)], with(Event::Abort)), Check::DirtyRead);
    assert_eq!(refused(vec![read(40, 41, row(ITS), Source::Shared)], vec![write(ITS)]), Check::DirtyRead);
    let twice = vec![write(ITS), Event::CommandEnd, write(ITS2), commit(20, 30)];
    assert_eq!(refused(vec![read(40, 41, row(ITS), Source::Shared)], twice), Check::DirtyRead);
    // Nobody deleted it, so its absence is of an uncommitted deletion (B52).
    assert_eq!(refused(vec![read(10, 15, Answer::None, Source::Fresh)], update()), Check::DirtyRead);
    let deleted = vec![delete(ITS), commit(20, 30)];
    assert_eq!(refused(vec![read(10, 15, Answer::None, Source::Shared)], deleted.clone()), Check::DirtyRead);
    allowed(vec![read(10, 25, Answer::None, Source::Shared)], deleted);
    // One's own aborted row is no better.
    let mine = vec![write(MINE), Event::CommandEnd, Event::Abort, read(1, 2, row(MINE), Source::Fresh)];
    assert_eq!(refused(mine, vec![]), Check::DirtyRead);
}

#[test]
fn an_acknowledged_commit_is_seen_by_who_accepts_after_it() {
    // A read that misses the local view accepts; whether it probes or loads.
    for source in [Source::Shared, Source::Reused] {
        assert_eq!(refused(vec![read(31, 32, V0, source)], update()), Check::Acknowledged);
    }
    // A hit of the local view is bound by the last accept only.
    let with = |accept: Vec<Event>| {
        [vec![read(1, 2, V0, Source::Fresh)], accept, vec![read(40, 41, V0, Source::Local)]].concat()
    };
    assert_eq!(allowed(with(vec![]), update()).old, 1);
    allowed(with(vec![accept(29)]), update());
    assert_eq!(refused(with(vec![accept(31)]), update()), Check::Acknowledged);
    let other = Event::Read { key: 9, begun: 31, ended: 32, answer: Answer::None, source: Source::Fresh };
    assert_eq!(refused(with(vec![other]), update()), Check::Acknowledged);
    // An own commit that was never ended by a command end is no different (A17).
    let own = |rest: Vec<Event>| [vec![read(1, 2, V0, Source::Fresh), write(MINE), commit(3, 4)], rest].concat();
    allowed(own(vec![read(5, 6, V0, Source::Local)]), vec![]);
    assert_eq!(refused(own(vec![accept(5), read(6, 7, V0, Source::Local)]), vec![]), Check::Acknowledged);
}

#[test]
fn a_version_is_read_only_while_it_is_current() {
    // Between P and the acknowledgement: too late for a shared hit and for a new snapshot, not for an old one (A10).
    for (source, old) in [(Source::Shared, false), (Source::Fresh, false), (Source::Reused, true)] {
        let events = vec![read(21, 22, V0, source)];
        if old {
            allowed(events, update());
        } else {
            assert_eq!(refused(events, update()), Check::Interval);
        }
    }
    allowed(vec![read(19, 22, V0, Source::Shared)], update());
    // A reused snapshot is as old as the read that took it.
    let other = Event::Read { key: 9, begun: 21, ended: 22, answer: Answer::None, source: Source::Fresh };
    assert_eq!(refused(vec![other.clone(), read(23, 24, V0, Source::Reused)], update()), Check::Interval);
    // And never older than what was answered since (A9, D11): key 2 is written by the commit that replaces K.
    let both = vec![write(ITS), Event::Write { key: 2, write: ITS2, row: true }, commit(20, 30)];
    let hit = Event::Read { key: 2, begun: 21, ended: 22, answer: row(ITS2), source: Source::Shared };
    assert_eq!(refused(vec![hit, read(23, 24, V0, Source::Reused)], both), Check::Interval);
}

#[test]
fn answers_do_not_go_back() {
    let second = vec![write(ITS), commit(20, 60), write(ITS2), commit(70, 80)];
    let events = vec![read(21, 22, row(ITS), Source::Reused), accept(23), read(24, 25, V0, Source::Reused)];
    assert_eq!(refused(events, second), Check::Order);
    // "No such row" may be of before or of after: the least is taken, and what follows need only not contradict it.
    let gone = vec![
        delete(ITS),
        commit(20, 60),
        write(ITS2),
        commit(70, 80),
        delete(WriteId { serial: 3, ..ITS }),
        commit(90, 95),
    ];
    let none = |begun| read(begun, 100 + begun, Answer::None, Source::Reused);
    allowed(vec![none(21), accept(74), read(75, 76, row(ITS2), Source::Shared), accept(91), none(92)], gone.clone());
    let back = vec![accept(65), none(71), accept(72), read(75, 76, row(ITS2), Source::Fresh), accept(91), none(92)];
    allowed(back, gone.clone());
    let back = vec![none(96), accept(197), read(198, 199, row(ITS2), Source::Reused)];
    assert!(matches!(refused(back, gone), Check::Order | Check::Acknowledged));
    // An own change that was seen and then committed is not gone back from.
    let mine = vec![
        write(MINE),
        Event::CommandEnd,
        read(1, 2, row(MINE), Source::Fresh),
        commit(3, 90),
        accept(5),
        read(6, 7, V0, Source::Reused),
    ];
    assert_eq!(refused(mine, vec![]), Check::Order);
}

#[test]
fn a_local_view_neither_changes_nor_forgets_by_itself() {
    let first = read(1, 2, V0, Source::Fresh);
    assert_eq!(refused(vec![first.clone(), read(21, 22, row(ITS), Source::Local)], update()), Check::Stable);
    assert_eq!(refused(vec![read(21, 22, V0, Source::Local)], update()), Check::Stable);
    // A7: without a point of processing there must be a local hit, be the answer what it may.
    assert_eq!(refused(vec![first.clone(), read(3, 4, V0, Source::Shared)], update()), Check::Stable);
    for point in [accept(3), Event::CommandEnd, Event::Abort] {
        allowed(vec![first.clone(), point, read(4, 5, V0, Source::Shared)], update());
    }
}

#[test]
fn an_aborted_subtransaction_is_undone_and_its_parent_is_not() {
    let again = WriteId { backend: 0, serial: 2 };
    let parent = [write(MINE), Event::CommandEnd, Event::SubBegin, write(again), Event::CommandEnd];
    let of = |more: &[Event]| [&parent[..], &[read(1, 2, row(again), Source::Fresh)], more].concat();
    allowed(of(&[Event::SubAbort, read(3, 4, row(MINE), Source::Fresh)]), vec![]);
    assert_eq!(refused(of(&[Event::SubAbort, read(3, 4, row(again), Source::Local)]), vec![]), Check::OwnChanges);
    assert_eq!(refused(of(&[Event::SubAbort, read(3, 4, V0, Source::Shared)]), vec![]), Check::OwnChanges);
    allowed(of(&[Event::SubCommit, read(3, 4, row(again), Source::Fresh)]), vec![]);
    assert_eq!(refused(of(&[Event::SubCommit, read(3, 4, V0, Source::Shared)]), vec![]), Check::OwnChanges);
}

#[test]
fn at_rest_everybody_sees_the_last_version() {
    let mut history = history(vec![read(1, 2, V0, Source::Fresh), read(21, 22, V0, Source::Local)], update());
    history.check().unwrap();
    history.quiet = Some(20);
    assert_eq!(history.check().unwrap_err().check, Check::Final);
    history.backends[0][1] = read(21, 22, row(ITS), Source::Shared);
    history.backends[0].insert(1, accept(19));
    assert_eq!(history.check().unwrap().last, 1);
}

// ---- the real cache -----------------------------------------------------------------------------------------------

#[test]
fn the_cache_answers_nothing_that_it_must_not() {
    let mut all = Tally::default();
    let (mut resets, mut restarts, mut evicted, mut full, mut existing) = (0, 0, 0, 0, 0);
    for plan in Plan::all(2_000, 1) {
        let outcome = run(&plan).unwrap_or_else(|e| panic!("{plan:?}: {e}"));
        let t = outcome.tally;
        for (sum, part) in [
            (&mut all.local, t.local),
            (&mut all.shared, t.shared),
            (&mut all.fresh, t.fresh),
            (&mut all.reused, t.reused),
            (&mut all.own, t.own),
            (&mut all.negative, t.negative),
            (&mut all.old, t.old),
            (&mut all.last, t.last),
            (&mut all.commits, t.commits),
            (&mut all.aborts, t.aborts),
            (&mut all.sub_commits, t.sub_commits),
            (&mut all.sub_aborts, t.sub_aborts),
            (&mut resets, outcome.resets),
            (&mut restarts, outcome.restarts),
            (&mut evicted, outcome.stats.evicted),
            (&mut full, outcome.stats.full),
            (&mut existing, outcome.stats.existing),
        ] {
            *sum += part;
        }
    }
    // A run in which something never happened has not tested it. These are far below what a busy machine shows.
    let seen = [
        ("local hits", all.local, 5_000),
        ("shared hits", all.shared, 500),
        ("loads", all.fresh, 2_000),
        ("loads with an old snapshot", all.reused, 1_000),
        ("own changes", all.own, 500),
        ("negative answers", all.negative, 500),
        ("legally old answers", all.old, 1),
        ("final answers", all.last, 16 * 17),
        ("commits", all.commits, 500),
        ("aborts", all.aborts, 500),
        ("commits of subtransactions", all.sub_commits, 200),
        ("aborts of subtransactions", all.sub_aborts, 200),
        ("resets", resets, 10),
        ("restarted loads", restarts, 1),
        ("evictions", evicted, 100),
        ("full tables", full, 10),
        ("adopted entries", existing, 1),
    ];
    for (what, count, least) in seen {
        assert!(count >= least, "only {count} {what}: {all}");
    }
}

#[test]
fn the_oracle_notices_a_cache_that_breaks_a_rule() {
    // Those whose breaking shows in answers soon; the others are for replay.
    let faults = [
        (Rule::CheckStripe, &[Check::Acknowledged, Check::Interval, Check::Order][..]),
        (Rule::OpenStripe, &[Check::Acknowledged, Check::Interval, Check::Order]),
        (Rule::AdvanceClock, &[Check::Acknowledged, Check::Interval, Check::Order]),
        (Rule::MarkAtClose, &[Check::Acknowledged, Check::Interval, Check::Order]),
        (Rule::SendMessages, &[Check::Acknowledged]),
        (Rule::AcceptBeforeProbe, &[Check::Acknowledged, Check::Interval, Check::Stable]),
        (Rule::DropSnapshotOnAccept, &[Check::Acknowledged, Check::Interval]),
        (Rule::DropLocalOnAccept, &[Check::Acknowledged]),
        (Rule::DoomRunningLoad, &[Check::Acknowledged, Check::Interval, Check::Order]),
        (Rule::ConsultDirtyAtProbe, &[Check::OwnChanges]),
        (Rule::ConsultDirtyAtPublish, &[Check::DirtyRead, Check::OwnChanges]),
        (Rule::DropLocalOnAbort, &[Check::DirtyRead, Check::Acknowledged]),
        (Rule::DropLocalAtCommandEnd, &[Check::OwnChanges]),
        // What the dirty set forgets is not sent either.
        (Rule::KeepDirtyAtSubCommit, &[Check::Acknowledged, Check::OwnChanges, Check::DirtyRead]),
        (Rule::DropLocalOnSubAbort, &[Check::OwnChanges, Check::DirtyRead]),
        (Rule::KeepParentOnSubAbort, &[Check::Acknowledged, Check::OwnChanges, Check::DirtyRead]),
        (Rule::ResetDropsLocal, &[Check::Acknowledged]),
        (Rule::TokenPerSnapshot, &[Check::Acknowledged, Check::Interval, Check::Order]),
        (Rule::RegisterMessage, &[Check::Acknowledged, Check::Interval, Check::DirtyRead, Check::OwnChanges]),
    ];
    for (rule, checks) in faults {
        // Chance decides how soon it shows, and which of its marks shows first: one wrong answer breaks several checks. Never
        // one of the expected marks in so many runs would be a miracle.
        let mut others = Vec::new();
        let caught = (0..30).any(|seed| match run(&Plan { fault: Some(rule), ..Plan::small(2, 2, 1_000, seed) }) {
            Err(RunError::Violation(violation)) if checks.contains(&violation.check) => true,
            Err(RunError::Violation(violation)) => {
                others.push(violation.check);
                false
            }
            Err(other) => panic!("{rule:?}: {other}"),
            Ok(_) => false,
        });
        assert!(caught, "{rule:?} was broken, and none of {checks:?} noticed; noticed by: {others:?}");
    }
}
