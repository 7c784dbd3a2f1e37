#!/bin/sh
# Runs the oracle on the real cache under ThreadSanitizer: races of plain accesses in the segment, in a binary of its own.
#
#     conformance/ci/tsan.sh [ROUNDS [SEED]]
#
# Needs the compiler's unstable switches (hence RUSTC_BOOTSTRAP, here and nowhere else) and a target folder of its own, since
# everything is compiled once more. std is not: what it hides is in tsan.supp, with the reason.
#
# The recording must not order the threads itself, so the oracle is told that a detector watches (--detector).
#
# That it sees what it should was tried by weakening, one at a time, each ordering of our lock to Relaxed: every one was
# reported from the entries that the lock guards.
#
# Cost on 2 cores: about 5 min to compile everything once, then 6 s for 2,000 rounds (60 s for 20,000).
set -eu

cd "$(dirname "$0")/../.."
triple=$(rustc -vV | sed -n 's/^host: //p')
target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/tsan

RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
    cargo build --package catcache-conformance --bin oracle --target "$triple" --target-dir "$target"

TSAN_OPTIONS="suppressions=$PWD/conformance/ci/tsan.supp exitcode=66 second_deadlock_stack=1" \
    "$target/$triple/debug/oracle" "${1:-2000}" "${2:-1}" --detector
