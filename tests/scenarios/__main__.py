"""The command: draw scenarios, check laws, shrink failures and print how to see them again."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from multiprocessing import get_context
from pathlib import Path

# as in tests: this package, and the oracle reference.py
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scenarios import ledger  # noqa: E402
from scenarios.report import shown_failure  # noqa: E402
from scenarios.runner import run, run_seed  # noqa: E402
from scenarios.scenario import draw, from_json  # noqa: E402
from scenarios.shrink import shrunk  # noqa: E402

CHUNK = 50


def judged(seeds: list[int]) -> list[tuple]:
    """Run scenarios; return of each what is to be counted."""
    out = []
    for seed in seeds:
        start = time.process_time()
        found = run_seed(seed)
        out.append(
            (
                seed,
                found.failures,
                found.refused,
                found.checked,
                found.excepted,
                time.process_time() - start,
            )
        )
    return out


def main() -> int | None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios", description=__doc__)
    parser.add_argument("--scenarios", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="scenario k has seed * 10,000,000 + k")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--scenario", type=int, help="one scenario, by its own seed")
    parser.add_argument("--record", help="one scenario, as the JSON that a failure prints")
    parser.add_argument("--law", action="append", help="check these laws only")
    parser.add_argument("--shrink", type=int, default=10, help="how many failures are made smaller")
    parser.add_argument(
        "--ledger",
        action="store_true",
        help="store the results, and update docs/reliability.md",
    )
    parser.add_argument(
        "--page", action="store_true", help="write docs/reliability.md by what is stored"
    )
    parser.add_argument("--refusals", action="store_true", help="list what was refused")
    options = parser.parse_args()
    if options.page:
        return ledger.write_page()
    if options.record or options.scenario is not None:
        scenario = from_json(options.record) if options.record else draw(options.scenario)
        outcome = run(scenario, options.law)
        print(
            scenario,
            f"\nrefused: {outcome.refused}" if outcome.refused else "",
            "\nlaws:",
            *outcome.checked,
        )
        for law, kind, message in outcome.failures:
            print(shown_failure(*shrunk(scenario, law, kind), message))
        return bool(outcome.failures)
    return many(options)


def many(options: argparse.Namespace) -> int:
    """Run many scenarios, and print what was found."""
    start, kinds, first = time.monotonic(), Counter(), {}
    checked, refusals, excepted, done, cpu = Counter(), Counter(), Counter(), 0, 0.0
    base = options.seed * 10_000_000
    seeds = range(base, base + options.scenarios)
    chunks = [list(seeds[k : k + CHUNK]) for k in range(0, len(seeds), CHUNK)]
    pool = get_context("fork").Pool(options.jobs) if options.jobs > 1 else None
    for part in pool.imap_unordered(judged, chunks) if pool else map(judged, chunks):
        for seed, failures, refused, laws, reasons, seconds in part:
            done, cpu = done + 1, cpu + seconds
            checked.update(laws)
            excepted.update(reasons)
            refusals[refused.split(".")[0][:70]] += bool(refused)
            for law, kind, message in failures:
                kinds[law, kind] += 1
                if (law, kind) not in first:
                    first[law, kind] = seed, message
                    print(f"[{seed}] {law}: {message[:300]}", flush=True)
        if time.monotonic() - start > options.minutes * 60:
            break
    if pool:
        pool.terminate()
    seconds = time.monotonic() - start
    print(
        f"\n{done} scenarios in {seconds:.0f} s: {60 * done / seconds:.0f} a minute, "
        f"{1e3 * cpu / done:.0f} ms of CPU each"
    )
    print(
        f"refused: {sum(refusals.values())}; laws checked: {sum(checked.values())}; excepted: "
        f"{sum(excepted.values())}"
    )
    if options.ledger:
        ledger.enter(
            done, sum(kinds.values()), sum(refusals.values()), seconds, cpu, options.jobs, checked
        )
        ledger.write_page()
    if options.refusals:
        print(*(f"{n:6d} {text}" for text, n in refusals.most_common(60)), sep="\n")
        print(*(f"{n:6d} {text}" for text, n in checked.most_common()), sep="\n")
    for (law, kind), (seed, message) in list(first.items())[: options.shrink]:
        print(
            f"\n=== {law}, {kind}: {kinds[law, kind]} times; python -m tests.scenarios --scenario "
            f"{seed}"
        )
        print(shown_failure(*shrunk(draw(seed), law, kind), message))
    return bool(first)


if __name__ == "__main__":
    sys.exit(main())
