#!/bin/sh
# Tests the tests: breaks one line of the cache at a time, and requires that the check which is there for it fails.
#
#     conformance/ci/mutants.sh orderings|lines [NAME…]
#
# orderings  atomic orderings, each weakened by one degree; caught by `cargo test --test orderings` or `--test lock`
# lines      broken lines of the protocol; caught by `cargo run --release -- conform`, and then
#            `cargo run --release -- bench` must refuse to measure
#
# With names, only those. It works on a copy of the checkout in the target folder, and removes it at the end; what was compiled
# stays beside it for the next time. First the copy must pass as it is.
#
# Exit status: 1 if a mutant survived; 2 if the copy does not pass unmutated, a mutant does not compile, or its line is not
# found exactly once.
set -eu

usage() {
    sed -n '4,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

fail() {
    echo "mutants.sh: $*" >&2
    exit 2
}

list=${1:-}
case $list in
orderings | lines) shift ;;
*) usage ;;
esac
names=" $* "

cd "$(dirname "$0")/../.."
target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
work=$target/mutants
copy=$work/copy
log=$work/log
export CARGO_TARGET_DIR="$work/build" RUST_BACKTRACE=0
begun=$(date +%s)

mkdir -p "$work"
mkdir "$copy" 2>/dev/null || fail "$copy exists: another run is on, or one was killed; in that case remove it"
trap 'rm -rf "$copy" "$log" "$log.bench" "$work/original"' EXIT
trap 'exit 130' INT TERM
git ls-files --cached --others --exclude-standard | while IFS= read -r file; do
    # Neither what is in the index only, nor anything that is no file.
    [ -f "$file" ] || continue
    mkdir -p "$copy/$(dirname "$file")"
    cp "$file" "$copy/$file"
done
cd "$copy"

# Builds what CHECK needs: a test of the conformance crate, or the front door.
build() {
    case $1 in
    conform) cargo build --release -q ;;
    *) cargo test -q -p catcache-conformance --test "$1" --no-run ;;
    esac </dev/null >"$log" 2>&1 || {
        cat "$log" >&2
        return 1
    }
}

# Does CHECK pass? A broken lock may never let go, hence the time limit.
passes() {
    case $1 in
    conform) timeout 1800 cargo run --release -q -- conform ;;
    *) timeout 600 cargo test -q -p catcache-conformance --test "$1" -- --test-threads 1 ;;
    esac </dev/null >"$log" 2>&1
}

# What to call the failure that has just happened, STATUS, of CHECK.
cause() {
    if [ "$2" = 124 ]; then
        echo "$1 (time limit)"
    elif [ "$1" = conform ]; then
        # No measuring without a seal. (It would take long: whoever has not refused by then is measuring.)
        if timeout 60 cargo run --release -q -- bench </dev/null >"$log.bench" 2>&1 || [ $? = 124 ]; then
            echo ""
        else
            echo "conform; bench refuses"
        fi
    else
        # The first that failed; the known-bad twins, which then fail for another reason than their own, come last.
        failed=$(sed -n 's/^---- \(.*\) stdout ----$/\1/p' "$log")
        first=$({ echo "$failed" | grep -v 'noticed$'; echo "$failed"; } | head -n 1)
        echo "$1: ${first:-aborted}"
    fi
}

# Replaces the line $old of FILE by $new. Prints its number.
mutate() {
    count=$(old=$old awk '$0 == ENVIRON["old"]' "$1" | wc -l)
    [ "$count" -eq 1 ] || fail "$name: this line is $count times in $1, not once: $old"
    old=$old awk '$0 == ENVIRON["old"] { print FNR }' "$1"
    old=$old new=$new awk '{ print ($0 == ENVIRON["old"] ? ENVIRON["new"] : $0) }' "$1" >"$1.mutant"
    cp "$1" "$work/original"
    mv "$1.mutant" "$1"
}

all=0
killed=0
survivors=
checked=

# One mutant: $name, $file, $check, $old, $new.
run() {
    case $names in
    "  " | *" $name "*) ;;
    *) return 0 ;;
    esac
    path=impl/src/$file
    # Each check must pass on the copy as it is, once.
    case " $checked " in
    *" $check "*) ;;
    *)
        build "$check" || fail "the copy does not compile"
        passes "$check" || {
            cat "$log" >&2
            fail "$check does not pass without a mutant"
        }
        checked="$checked $check"
        echo "$check passes without a mutant, after $(($(date +%s) - begun)) s"
        ;;
    esac
    line=$(mutate "$path") || exit 2
    build "$check" || fail "$name does not compile"
    status=0
    passes "$check" || status=$?
    by=
    [ "$status" = 0 ] || by=$(cause "$check" "$status")
    cp "$work/original" "$path"
    all=$((all + 1))
    if [ -n "$by" ]; then
        killed=$((killed + 1))
    else
        survivors="$survivors $name"
        by="NOTHING"
    fi
    printf '%s | %s:%s %s | %s\n' "$name" "$file" "$line" "$(echo "$new" | sed 's/^ *//')" "$by"
}

echo "mutant | file:line text | caught by"
while IFS= read -r text; do
    case $text in
    "@ $list "*)
        wanted=yes
        # shellcheck disable=SC2086
        set -- ${text#"@ $list "}
        check=$1 file=$2 name=$3
        ;;
    "@ "*) wanted=no ;;
    "- "*) old=${text#- } ;;
    "+ "*)
        new=${text#+ }
        [ $wanted = no ] || run
        ;;
    esac
done <<'LIST'
The first word says which list, then: check, file, name. Below, the line as it is, and as it becomes.

@ orderings orderings shared/stamp.rs token
-     let clock = arena.word(arena.layout().clock).load(Ordering::Acquire) + 1;
+     let clock = arena.word(arena.layout().clock).load(Ordering::Relaxed) + 1;
@ orderings orderings shared/stamp.rs advance
-     let now = clock.fetch_add(one, Ordering::Release) + one + 1;
+     let now = clock.fetch_add(one, Ordering::Relaxed) + one + 1;
@ orderings orderings shared/stamp.rs check
-         let value = StampValue::unpack(word(arena, level, index).load(Ordering::Acquire));
+         let value = StampValue::unpack(word(arena, level, index).load(Ordering::Relaxed));
@ orderings orderings shared/stamp.rs close
-         match word.compare_exchange(found, new.pack(), Ordering::Release, Ordering::Relaxed) {
+         match word.compare_exchange(found, new.pack(), Ordering::Relaxed, Ordering::Relaxed) {
@ orderings orderings shared/entry.rs drop-without-acquire
-         let old = Word(self.arena.word(self.at + WORD).fetch_sub(1, Ordering::AcqRel));
+         let old = Word(self.arena.word(self.at + WORD).fetch_sub(1, Ordering::Release));
@ orderings orderings shared/entry.rs drop-without-release
-         let old = Word(self.arena.word(self.at + WORD).fetch_sub(1, Ordering::AcqRel));
+         let old = Word(self.arena.word(self.at + WORD).fetch_sub(1, Ordering::Acquire));
@ orderings orderings shared/entry.rs unlink-without-acquire
-         let old = Word(self.arena.word(self.at + WORD).fetch_and(!(LINKED | HOT), Ordering::AcqRel));
+         let old = Word(self.arena.word(self.at + WORD).fetch_and(!(LINKED | HOT), Ordering::Release));
@ orderings orderings shared/entry.rs unlink-without-release
-         let old = Word(self.arena.word(self.at + WORD).fetch_and(!(LINKED | HOT), Ordering::AcqRel));
+         let old = Word(self.arena.word(self.at + WORD).fetch_and(!(LINKED | HOT), Ordering::Acquire));
@ orderings orderings shared/entry.rs unlink-and-drop-without-acquire
-         let old = Word(self.arena.word(self.at + WORD).fetch_sub(LINKED | 1, Ordering::AcqRel));
+         let old = Word(self.arena.word(self.at + WORD).fetch_sub(LINKED | 1, Ordering::Release));
@ orderings orderings shared/entry.rs unlink-and-drop-without-release
-         let old = Word(self.arena.word(self.at + WORD).fetch_sub(LINKED | 1, Ordering::AcqRel));
+         let old = Word(self.arena.word(self.at + WORD).fetch_sub(LINKED | 1, Ordering::Acquire));
@ orderings lock shared/lock.rs acquire
-                 if self.futex.word().compare_exchange(state, new, Ordering::Acquire, Ordering::Relaxed).is_ok() =>
+                 if self.futex.word().compare_exchange(state, new, Ordering::Relaxed, Ordering::Relaxed).is_ok() =>
@ orderings lock shared/lock.rs acquire-slowly
-                 if word.compare_exchange(state, new, Ordering::Acquire, Ordering::Relaxed).is_ok() {
+                 if word.compare_exchange(state, new, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
@ orderings lock shared/lock.rs release-shared
-             match word.compare_exchange(state, new, Ordering::Release, Ordering::Relaxed) {
+             match word.compare_exchange(state, new, Ordering::Relaxed, Ordering::Relaxed) {
@ orderings lock shared/lock.rs release-exclusive
-         let state = self.futex.word().swap(0, Ordering::Release);
+         let state = self.futex.word().swap(0, Ordering::Relaxed);

@ lines conform backend/driver.rs close-before-visible
-         bracket.open(&self.core.probe);
+         bracket.open(&self.core.probe); bracket.close(&self.core.probe); let bracket = self.core.shared.bracket([]);
@ lines conform backend/driver.rs token-after-snapshot
-         let snapshot = self.catalog.snapshot()?;
+         let (snapshot, token) = (self.catalog.snapshot()?, self.core.shared.token(&self.core.probe));
@ lines conform shared/stamp.rs mark-not-the-greater
-         let new = StampValue { mark: old.mark.max(mark), open: old.open - u32::from(opened) };
+         let new = StampValue { mark, open: old.open - u32::from(opened) };
@ lines conform backend/driver.rs send-before-visible
-         bracket.open(&self.core.probe);
+         bracket.open(&self.core.probe); self.core.ring.send(&self.core.probe, &messages); let messages: [Message; 0] = [];
@ lines conform backend/driver.rs changes-forgotten-before-close
-         bracket.close(&self.core.probe);
+         self.core.forget_changes(); self.core.show(); bracket.close(&self.core.probe);
@ lines conform backend/driver.rs abort-keeps-local-view
-         let changed = self.core.dirty.messages().to_vec();
+         let changed: Vec<Message> = Vec::new();
@ lines conform backend/local_view.rs first-collision-only
-                     self.remove(at, dropped);
+                     return self.remove(at, dropped);
@ lines conform shared/table.rs kept-entry-not-checked
-                 let Verdict { good, mark } = stamp::check(&self.arena, probe, key, token);
+                 let Verdict { good, mark } = Verdict { good: token > 0, mark: 0 };
@ lines conform backend/ring.rs reset-of-all
-             if position < least {
+             if position < after.max(least) {
@ lines conform backend/ring.rs overwritten-unnoticed
-         if after - arena.get(area.floor) > u64::from(area.capacity) {
+         if after - arena.get(area.floor) > u64::from(u32::MAX) {
@ lines conform shared/table.rs evicted-while-referenced
-     entry.unreferenced() || !probe.keeps(Rule::UnlinkBeforeFree)
+     entry.unreferenced() || probe.keeps(Rule::UnlinkBeforeFree)
@ lines conform shared/table.rs freed-twice
-         let free = self.entry(at).drop_reference();
+         let free = self.entry(at).drop_reference(); if free { self.slab.free(&self.arena, probe, at); }
@ lines conform shared/table.rs never-freed
-         let free = self.entry(at).drop_reference();
+         let free = self.entry(at).drop_reference() && at.0 == 0;
@ lines conform backend/driver.rs negative-not-cached
-             let local = self.core.keep(key, present.then_some(&self.row[..]), token);
+             let local = self.core.keep(key, present.then_some(&self.row[..]), if present { token } else { Token::default() });
@ lines conform shared/entry.rs key-without-database
-         if name.of() != Name::new(key.database, key.cache, None).of() {
+         if name.cache() != key.cache {
@ lines conform shared/entry.rs hit-of-any-database
-         (rest <= ROW_FIELD).then_some(rest as u32)
+         (u64::from(rest as u32) <= ROW_FIELD).then_some(rest as u32)
@ lines conform backend/driver.rs doomed-load-kept
-             if doomed {
+             if doomed && !present {
LIST

[ "$all" -gt 0 ] || fail "there is no such mutant:$names"
echo "caught: $killed/$all in $(($(date +%s) - begun)) s"
[ -z "$survivors" ] || {
    echo "survived:$survivors" >&2
    exit 1
}
