//! The scopes: bounded programs in which each backend has a role, small enough to be exhausted, chosen so that each
//! feature meets those it can quarrel with.
//!
//! Everything in one scope is some 10^10 states. Each scope pins how many distinct states it has (`unique`) and how many
//! steps were taken to find that out (`generated`): a changed count is a changed model, and wants a sentence in the commit.

use super::program::{KeySpec, ListSpec, Op, Op::*, Plan, Program};

/// Which form of a check a scope belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// In every `verify`.
    Quick,
    /// By name, or with `--full`.
    Full,
}

/// A named program with its pinned counts.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Its name on the command line.
    pub name: &'static str,
    /// What meets here.
    pub about: &'static str,
    /// When it runs.
    pub form: Form,
    /// The program.
    pub program: Program,
    /// Pinned: distinct states.
    pub unique: usize,
    /// Pinned: states generated.
    pub generated: usize,
    /// The features that meet in it.
    pub features: &'static [Feature],
}

/// What a scope can exercise; the table of pairs says which of them meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Feature {
    Tuple,
    Negative,
    Collision,
    SharedStripe,
    TwoWriters,
    Snapshot,
    CommandEnd,
    Subtransaction,
    Abort,
    Withdraw,
    Toast,
    Overflow,
    Evict,
    Full,
    Trim,
    InPlace,
    WholeCatalog,
    Escalation,
    Databases,
    List,
    ListAndTuple,
}

impl Feature {
    /// Every feature.
    pub const ALL: &[Feature] = {
        use Feature::*;
        &[
            Tuple,
            Negative,
            Collision,
            SharedStripe,
            TwoWriters,
            Snapshot,
            CommandEnd,
            Subtransaction,
            Abort,
            Withdraw,
            Toast,
            Overflow,
            Evict,
            Full,
            Trim,
            InPlace,
            WholeCatalog,
            Escalation,
            Databases,
            List,
            ListAndTuple,
        ]
    };
}

fn key(hash: u32) -> KeySpec {
    KeySpec::new(["k0", "k1", "k2", "k3"][hash as usize & 3], 0, hash)
}

/// A list of the first two keys.
fn list() -> Vec<ListSpec> {
    vec![ListSpec { name: "l".into(), members: [0, 1] }]
}

fn program(keys: Vec<KeySpec>, plans: Vec<Plan>) -> Program {
    Program {
        keys,
        lists: Vec::new(),
        stripes: 4,
        ring: 4,
        entries: None,
        local: None,
        escalate: None,
        plans,
        stale_tokens: true,
        record: false,
        fault: None,
    }
}

impl Scope {
    /// Every scope.
    pub fn all() -> Vec<Scope> {
        use Feature::*;
        let put = &[Begin, Update(0), Commit][..];
        let quick = |name, about, features, program| Scope {
            name,
            about,
            form: Form::Quick,
            program,
            unique: 0,
            generated: 0,
            features,
        };
        let mut scopes = vec![
            quick(
                "tuple",
                "two readers and a writer of one key",
                &[Tuple, Snapshot],
                program(
                    vec![key(0)],
                    vec![
                        Plan::menu("reader", 3, &[&[Lookup(0)], &[Accept]]),
                        Plan::menu("other", 2, &[&[Lookup(0)], &[Accept]]),
                        Plan::menu("writer", 2, &[put]),
                    ],
                ),
            ),
            quick(
                "collision",
                "two keys of one hash, one of them absent at first: negative entries, inserts and deletes",
                &[Tuple, Negative, Collision, Snapshot],
                program(
                    vec![key(0), KeySpec::new("k1", 0, 0).absent()],
                    vec![
                        Plan::menu("reader", 4, &[&[Lookup(0)], &[Lookup(1)], &[Accept]]),
                        Plan::menu("writer", 2, &[&[Begin, Insert(1), Commit], &[Begin, Delete(0), Commit]]),
                    ],
                ),
            ),
            quick(
                "two-closers",
                "two writers whose different hashes share a stripe",
                &[Tuple, SharedStripe, TwoWriters, Snapshot],
                Program {
                    stripes: 1,
                    ..program(
                        vec![key(0), key(1)],
                        vec![
                            Plan::menu("reader", 2, &[&[Lookup(0)], &[Lookup(1)]]),
                            Plan::script("first", &[Begin, Update(0), Commit]),
                            Plan::script("second", &[Begin, Update(1), Commit]),
                        ],
                    )
                },
            ),
            quick(
                "own-snapshot",
                "a snapshot that serves several loads, beside entries that others load",
                &[Tuple, Snapshot],
                program(
                    vec![key(0), key(1)],
                    vec![
                        Plan::menu("reader", 3, &[&[Lookup(0)], &[Lookup(1)]]),
                        Plan::menu("other", 1, &[&[Lookup(0)], &[Lookup(1)]]),
                        Plan::menu("writer", 1, &[put, &[Begin, Update(1), Update(0), Commit]]),
                    ],
                ),
            ),
            quick(
                "duplicate-load",
                "two loaders of one key, with snapshots of different age",
                &[Tuple, Snapshot, Toast],
                program(
                    vec![key(0).toasted()],
                    vec![
                        Plan::menu("reader", 2, &[&[Lookup(0)]]),
                        Plan::menu("other", 2, &[&[Lookup(0)]]),
                        Plan::menu("writer", 2, &[put]),
                    ],
                ),
            ),
            quick(
                "composite",
                "several keys in one local view: what a miss may leave in it",
                &[Tuple, Negative, Snapshot],
                program(
                    vec![key(0), key(1).absent()],
                    vec![
                        Plan::menu("reader", 4, &[&[Lookup(0)], &[Lookup(1)]]),
                        Plan::menu("writer", 2, &[put, &[Begin, Insert(1), Update(0), Commit]]),
                    ],
                ),
            ),
            quick(
                "command-end",
                "own changes before and after the end of a command, with commit and abort, beside a reader",
                &[Tuple, Negative, CommandEnd, Abort, Snapshot],
                program(
                    vec![key(0)],
                    vec![
                        Plan::menu("reader", 2, &[&[Lookup(0)], &[Accept]]),
                        Plan::menu(
                            "writer",
                            2,
                            &[
                                &[Lookup(0)],
                                &[Begin, Lookup(0)],
                                &[Begin, Lookup(0), Update(0), Lookup(0), Op::CommandEnd, Lookup(0), Commit],
                                &[Begin, Delete(0), Op::CommandEnd, Lookup(0), Op::Abort, Lookup(0)],
                            ],
                        ),
                        Plan::script("second", put),
                    ],
                ),
            ),
            quick(
                "subtransaction",
                "subtransactions two deep that commit and abort, beside a reader and another writer",
                &[Tuple, Negative, CommandEnd, Subtransaction, Abort, Snapshot, TwoWriters],
                program(
                    vec![key(0)],
                    vec![
                        Plan::menu("reader", 2, &[&[Lookup(0)], &[Accept]]),
                        Plan::menu(
                            "writer",
                            1,
                            &[
                                &[Begin, SubBegin, Update(0), SubCommit, Lookup(0), Commit],
                                &[
                                    Begin,
                                    Update(0),
                                    Op::CommandEnd,
                                    SubBegin,
                                    Delete(0),
                                    Op::CommandEnd,
                                    Lookup(0),
                                    SubAbort,
                                    Lookup(0),
                                    Commit,
                                ],
                                &[
                                    Begin,
                                    SubBegin,
                                    Update(0),
                                    Op::CommandEnd,
                                    SubBegin,
                                    Update(0),
                                    Op::CommandEnd,
                                    Lookup(0),
                                    SubAbort,
                                    Lookup(0),
                                    SubAbort,
                                    Lookup(0),
                                    Op::Abort,
                                ],
                            ],
                        ),
                        Plan::script("second", put),
                    ],
                ),
            ),
            quick(
                "toast",
                "loads that accept messages between scan and publication",
                &[Tuple, Toast, Snapshot, Collision, Negative],
                program(
                    vec![key(0).toasted(), KeySpec::new("k1", 0, 0).absent()],
                    vec![
                        Plan::menu("reader", 3, &[&[Lookup(0)], &[Lookup(1)], &[Accept]]),
                        Plan::menu("writer", 2, &[put, &[Begin, Insert(1), Commit]]),
                    ],
                ),
            ),
            quick(
                "overflow",
                "a ring of two messages, three writes, and a reader with own changes that falls behind",
                &[Tuple, Overflow, CommandEnd, Abort, TwoWriters],
                Program {
                    ring: 2,
                    ..program(
                        vec![key(0), key(1)],
                        vec![
                            Plan {
                                name: "laggard".into(),
                                items: vec![
                                    vec![Lookup(0)],
                                    vec![Accept],
                                    vec![Begin, Update(1), Op::CommandEnd, Lookup(0), Lookup(1), Commit],
                                ],
                                starts: 3,
                                database: 1,
                            },
                            Plan::menu("writer", 3, &[put, &[Begin, Update(1), Commit]]),
                        ],
                    )
                },
            ),
            quick(
                "overflow-load",
                "a reset that arrives inside a load",
                &[Tuple, Overflow, Toast, Snapshot],
                Program {
                    ring: 1,
                    ..program(
                        vec![key(0).toasted(), key(1)],
                        vec![
                            Plan::menu("laggard", 3, &[&[Lookup(0)], &[Lookup(1)], &[Accept]]),
                            Plan::menu("writer", 2, &[put, &[Begin, Update(0), Update(1), Commit]]),
                        ],
                    )
                },
            ),
            quick(
                "evict",
                "one slot for two keys: eviction, reuse, and entries that are still referenced",
                &[Tuple, Evict, Full, Snapshot],
                Program {
                    entries: Some(1),
                    ..program(
                        vec![key(0), key(1)],
                        vec![
                            Plan::menu("reader", 2, &[&[Lookup(0)], &[Lookup(1)], &[Accept]]),
                            Plan::menu("evictor", 2, &[&[Op::Evict(0)], &[Lookup(0)], &[Lookup(1)]]),
                            Plan::script("writer", put),
                        ],
                    )
                },
            ),
            quick(
                "trim",
                "a local view of one entry, and two slots",
                &[Tuple, Trim, Full, Evict, Snapshot],
                Program {
                    entries: Some(2),
                    local: Some(1),
                    ..program(
                        vec![key(0), key(1), key(2)],
                        vec![
                            Plan::menu("reader", 4, &[&[Lookup(0)], &[Lookup(1)], &[Lookup(2)], &[Accept]]),
                            Plan::script("writer", &[Begin, Update(0), Commit]),
                        ],
                    )
                },
            ),
            quick(
                "withdraw",
                "a commit that fails between open and P, beside loads and a commit that succeeds",
                &[Tuple, Withdraw, SharedStripe, TwoWriters, Abort],
                Program {
                    stripes: 1,
                    ..program(
                        vec![key(0), key(1)],
                        vec![
                            Plan::menu("reader", 2, &[&[Lookup(0)]]),
                            Plan::script("failing", &[Begin, Update(0), CommitFails]),
                            Plan::script("writer", &[Begin, Update(1), Commit]),
                        ],
                    )
                },
            ),
            quick(
                "in-place",
                "rows changed where they lie, by transactions that abort, beside loads, a held snapshot and a commit",
                &[Tuple, InPlace, Abort, Snapshot, Toast, TwoWriters],
                program(
                    vec![key(0).toasted(), key(1)],
                    vec![
                        Plan::menu("reader", 2, &[&[Lookup(0)], &[Lookup(1)], &[Accept]]),
                        Plan::menu("updater", 1, &[&[Begin, Op::InPlace(0), Op::Abort], &[Op::InPlace(1), Lookup(1)]]),
                        Plan::script("writer", put),
                    ],
                ),
            ),
            quick(
                "whole-catalog",
                "a catalog that is rewritten as a whole, with own lookups, beside loads and another writer",
                &[Tuple, WholeCatalog, CommandEnd, Abort, Snapshot, Toast, TwoWriters, Negative],
                program(
                    vec![key(0).toasted(), key(1).absent()],
                    vec![
                        Plan::menu("reader", 3, &[&[Lookup(0)], &[Lookup(1)], &[Accept]]),
                        Plan::menu(
                            "rewriter",
                            1,
                            &[
                                &[Begin, Rewrite(0), Op::CommandEnd, Lookup(0), Commit],
                                &[Begin, Lookup(0), Rewrite(0), Op::CommandEnd, Lookup(0), Op::Abort, Lookup(0)],
                            ],
                        ),
                        Plan::script("writer", put),
                    ],
                ),
            ),
            quick(
                "escalation",
                "a bracket of two rows, which opens the stamps of their catalogs, beside one that opens a stripe",
                &[Tuple, Escalation, WholeCatalog, Snapshot, TwoWriters],
                Program {
                    escalate: Some(1),
                    ..program(
                        vec![key(0), KeySpec::new("k1", 1, 1)],
                        vec![
                            Plan::menu("reader", 3, &[&[Lookup(0)], &[Lookup(1)]]),
                            Plan::script("large", &[Begin, Update(0), Update(1), Commit]),
                            Plan::script("small", put),
                        ],
                    )
                },
            ),
            quick(
                "databases",
                "two databases with a row of one hash each, a shared catalog, and a database that is dropped",
                &[Tuple, Databases, Negative, Snapshot, TwoWriters, Abort],
                program(
                    vec![key(0), KeySpec::new("other", 0, 0).of(2), KeySpec::new("shared", 0, 1).of(0)],
                    vec![
                        Plan::menu("reader", 1, &[&[Lookup(0)], &[Lookup(2)]]),
                        Plan::menu("elsewhere", 3, &[&[Lookup(1)], &[Lookup(2)], &[Accept]]).of(2),
                        Plan::menu("writer", 1, &[&[Begin, Update(2), Commit], &[Begin, DropDatabase(1), Commit], put]),
                    ],
                ),
            ),
            quick(
                "list",
                "a list of two members, one of them absent at first: inserts, deletes, and a change of key",
                &[List, Negative, Snapshot],
                Program {
                    lists: list(),
                    ..program(
                        vec![key(0), key(1).absent()],
                        vec![
                            Plan::menu("reader", 3, &[&[Lookup(2)], &[Accept]]),
                            Plan::menu("writer", 2, &[&[Begin, Delete(0), Insert(1), Commit], put]),
                        ],
                    )
                },
            ),
            quick(
                "list-and-tuple",
                "a list and one of its members, looked up in turn by one snapshot",
                &[List, ListAndTuple, Tuple, Negative, Snapshot],
                Program {
                    lists: list(),
                    ..program(
                        vec![key(0), key(1).absent()],
                        vec![
                            Plan::menu("reader", 3, &[&[Lookup(2)], &[Lookup(0)], &[Accept]]),
                            Plan::menu("writer", 2, &[put, &[Begin, Insert(1), Commit]]),
                        ],
                    )
                },
            ),
            quick(
                "list-toast",
                "a list that accepts messages while it is built, and gets a new member meanwhile (B03)",
                &[List, Toast, Negative, Snapshot, WholeCatalog],
                Program {
                    lists: list(),
                    ..program(
                        vec![key(0).toasted(), key(1).absent()],
                        vec![
                            Plan::menu("reader", 3, &[&[Lookup(2)], &[Accept]]),
                            Plan::menu("writer", 2, &[&[Begin, Insert(1), Commit], &[Begin, Rewrite(0), Commit]]),
                        ],
                    )
                },
            ),
            quick(
                "list-own",
                "a list in a transaction that changes its members, with commit and abort, beside a reader",
                &[List, CommandEnd, Abort, Negative, Snapshot],
                Program {
                    lists: list(),
                    ..program(
                        vec![key(0), key(1).absent()],
                        vec![
                            Plan::menu("reader", 2, &[&[Lookup(2)], &[Accept]]),
                            Plan::menu(
                                "writer",
                                1,
                                &[
                                    &[Begin, Lookup(2), Insert(1), Op::CommandEnd, Lookup(2), Commit],
                                    &[Begin, Delete(0), Op::CommandEnd, Lookup(2), Op::Abort, Lookup(2)],
                                ],
                            ),
                        ],
                    )
                },
            ),
            quick(
                "list-two",
                "two builders of one list with snapshots of different age, and a loader of a member",
                &[List, ListAndTuple, Tuple, Snapshot],
                Program {
                    lists: list(),
                    ..program(
                        vec![key(0), key(1), key(2)],
                        vec![
                            Plan::menu("reader", 2, &[&[Lookup(2)], &[Lookup(3)]]),
                            Plan::menu("other", 1, &[&[Lookup(0)], &[Lookup(3)]]),
                            Plan::script("writer", put),
                        ],
                    )
                },
            ),
            quick(
                "list-evict",
                "a list in a table of four slots: its members are pinned by it and by nobody else",
                &[List, ListAndTuple, Tuple, Evict, Full, Snapshot],
                Program {
                    entries: Some(4),
                    lists: list(),
                    ..program(
                        vec![key(0), key(1).absent()],
                        vec![
                            Plan::menu("reader", 2, &[&[Lookup(2)], &[Lookup(0)], &[Accept]]),
                            Plan::menu("evictor", 2, &[&[Op::Evict(0)], &[Lookup(2)]]),
                            Plan::script("writer", put),
                        ],
                    )
                },
            ),
            quick(
                "list-full",
                "a list of two members in a table of two slots, and a local view of one entry",
                &[List, ListAndTuple, Tuple, Full, Evict, Trim, Snapshot],
                Program {
                    entries: Some(2),
                    local: Some(1),
                    lists: list(),
                    ..program(
                        vec![key(0), key(1).absent()],
                        vec![
                            Plan::menu("reader", 3, &[&[Lookup(2)], &[Lookup(0)], &[Accept]]),
                            Plan::menu("writer", 1, &[&[Begin, Insert(1), Commit], &[Begin, Delete(0), Commit]]),
                        ],
                    )
                },
            ),
        ];
        // Without menus: everybody may do everything. Three backends that may start 1, 1, 1 items of one key have 44,561
        // states; 2, 1, 1 have 524,234; 2, 2, 1 have 5,288,194; 2, 2, 2 have 46,263,915. Each further item multiplies by
        // about ten, so the next size takes hours: the border is here.
        let all = |keys: u8, toasted: bool| {
            let mut items: Vec<Vec<Op>> = vec![vec![Accept]];
            for k in 0..keys {
                items.push(vec![Lookup(k)]);
                items.push(vec![Begin, Update(k), Commit]);
                items.push(vec![Begin, Delete(k), Op::CommandEnd, Lookup(k), Op::Abort]);
            }
            let specs = (0..keys).map(|k| key(u32::from(k)));
            let specs: Vec<KeySpec> = specs.map(|k| if toasted { k.toasted() } else { k }).collect();
            (specs, items)
        };
        let everybody = |names: &[&str], starts: u8, items: &[Vec<Op>]| {
            names
                .iter()
                .map(|n| Plan { name: (*n).into(), items: items.to_vec(), starts, database: 1 })
                .collect::<Vec<_>>()
        };
        let (one, one_items) = all(1, false);
        let (again, again_items) = all(1, false);
        let (toasted, toasted_items) = all(1, true);
        let (two, two_items) = all(2, false);
        scopes.extend([
            Scope {
                form: Form::Full,
                ..quick(
                    "all-of-one-key",
                    "three backends, each of which may do anything with one key",
                    &[Tuple, Negative, Snapshot, CommandEnd, Abort, TwoWriters],
                    program(one, everybody(&["a", "b", "c"], 1, &one_items)),
                )
            },
            Scope {
                form: Form::Full,
                ..quick(
                    "all-of-one-key-twice",
                    "three backends, each of which may do any two things with one key",
                    &[Tuple, Negative, Snapshot, CommandEnd, Abort, TwoWriters],
                    program(again, everybody(&["a", "b", "c"], 2, &again_items)),
                )
            },
            Scope {
                form: Form::Full,
                ..quick(
                    "all-of-one-key-overflow",
                    "two backends, each of which may do anything with one toasted key, over a ring of one message",
                    &[Tuple, Negative, Snapshot, CommandEnd, Abort, TwoWriters, Toast, Overflow],
                    Program { ring: 1, ..program(toasted, everybody(&["a", "b"], 4, &toasted_items)) },
                )
            },
            Scope {
                form: Form::Full,
                ..quick(
                    "all-of-two-keys",
                    "two backends, each of which may do anything with two keys that share a stripe",
                    &[Tuple, Negative, Snapshot, CommandEnd, Abort, TwoWriters, SharedStripe],
                    Program { stripes: 1, ..program(two, everybody(&["a", "b"], 3, &two_items)) },
                )
            },
        ]);
        for scope in &mut scopes {
            if let Some((_, unique, generated)) = PINNED.iter().find(|(name, ..)| *name == scope.name) {
                (scope.unique, scope.generated) = (*unique, *generated);
            }
        }
        scopes
    }

    /// The scope of a name.
    pub fn named(name: &str) -> Option<Scope> {
        Scope::all().into_iter().find(|s| s.name == name)
    }
}

/// Distinct states and generated states of each scope.
const PINNED: &[(&str, usize, usize)] = &[
    ("tuple", 756241, 2174873),
    ("collision", 82035, 173391),
    ("two-closers", 57026, 134957),
    ("own-snapshot", 421298, 1099034),
    ("duplicate-load", 674537, 1890568),
    ("composite", 102940, 205047),
    ("command-end", 805041, 1992892),
    ("subtransaction", 43817, 99363),
    ("toast", 68238, 132875),
    ("overflow", 515132, 986034),
    ("overflow-load", 139417, 271056),
    ("evict", 403262, 1061429),
    ("trim", 13679, 27251),
    ("withdraw", 2176, 5367),
    ("in-place", 650052, 1637368),
    ("whole-catalog", 627059, 1591535),
    ("escalation", 98983, 191750),
    ("databases", 484442, 1299409),
    ("list", 27549, 54744),
    ("list-and-tuple", 74303, 148498),
    ("list-toast", 38362, 73639),
    ("list-own", 2018, 3737),
    ("list-two", 111999, 283899),
    ("list-evict", 358908, 961937),
    ("list-full", 7741, 14861),
    ("all-of-one-key", 44561, 98758),
    ("all-of-one-key-twice", 46263915, 117605716),
    ("all-of-one-key-overflow", 16232488, 34151829),
    ("all-of-two-keys", 32972316, 66227371),
];
