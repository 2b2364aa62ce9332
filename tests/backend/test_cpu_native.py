"""The native runner: results under every schedule of threads, and the life cycle of the process."""

import os
import sys

import pytest

pytest.importorskip("llvmlite")
if not sys.platform.startswith("linux"):
    pytest.skip("worker threads wait on futexes, which are Linux's", allow_module_level=True)

from tests.backend.native_programs import in_child


def test_programs_of_all_forms_compute_the_same() -> None:
    in_child("""
        for count in (1, 2, 3, 64, 1000):
            for depth in (1, 2, 5, 40):
                for nanoseconds in (100.0, 20_000.0, 3_000_000.0):
                    for options in ({}, {"long": True}, {"timed": True}):
                        program = Mirrors(count, depth, nanoseconds, **options)
                        for start in range(3):
                            program.check(start)
    """)


@pytest.mark.parametrize("threads", [3, 7])
def test_more_threads_than_cores(threads: int) -> None:
    in_child(
        """
        programs = [Mirrors(count, depth) for count in (5, 300) for depth in (3, 30)]
        assert native.team().running == native.team().threads - 1
        for start in range(200):
            for program in programs:
                program.check(start)
        """,
        TILEGRAD_THREADS=str(threads),
    )


def test_a_hundred_thousand_runs_with_stragglers() -> None:
    """Several programs alternate, with short pauses so that workers sleep, wake late, and meet old programs."""
    in_child("""
        import random, time
        random.seed(7)
        programs = [Mirrors(count, depth, ns) for count, depth, ns in
                    ((16, 1, 60_000.), (16, 3, 60_000.), (7, 8, 60_000.), (2, 2, 100.), (64, 5, 8_000.))]
        for n in range(100_000):
            random.choice(programs).run()
            if n % 997 == 0:
                time.sleep(random.random() * 0.002)
            if n % 100 == 0:
                for program in programs:
                    program.check(n)
    """)


def test_programs_come_and_go_while_workers_look() -> None:
    in_child("""
        import random
        from tilegrad.backend.cpu import task_table
        for n in range(3000):
            program = Mirrors(random.randrange(1, 40), random.randrange(1, 12))
            program.check(n)
        del program
        assert len(task_table._awaiting_release) < 100
    """)


def test_python_threads_share_the_runner() -> None:
    """Runs of one program are serialised; different programs, long and short, run concurrently."""
    in_child("""
        import threading
        programs = [Mirrors(200, 6, long=True), Mirrors(50, 3), Mirrors(20, 2, 100.0), Mirrors(100, 9, long=True)]
        failures = []
        def work(program, times):
            try:
                for n in range(times):
                    program.check(n)
            except BaseException as e:
                failures.append(e)
        threads = [threading.Thread(target=work, args=(p, 400)) for p in programs]
        for t in threads: t.start()
        for t in threads: t.join()
        assert not failures, failures
    """)


@pytest.mark.parametrize("workers", [2, 5])
def test_threads_make_run_and_drop_programs_at_random(workers: int) -> None:
    """The first use is concurrent too: whichever thread comes first creates the runtime."""
    in_child(
        """
        import random, threading, time
        failures, end = [], time.time() + 2
        def work(seed):
            choose, live = random.Random(seed), []
            try:
                while time.time() < end:
                    if len(live) < 6 or choose.random() < 0.02:
                        nanoseconds = choose.choice([100.0, 20_000.0, 1e6])
                        options = {"long": choose.random() < 0.5, "timed": choose.random() < 0.3}
                        live.append(Mirrors(choose.randrange(1, 200), choose.randrange(1, 15), nanoseconds, **options))
                    if len(live) > 6:
                        live.pop(choose.randrange(len(live)))
                    program = choose.choice(live)
                    for _ in range(choose.randrange(20)):
                        program.run()
                    program.check(choose.randrange(1000))
                    if choose.random() < 0.01:
                        time.sleep(choose.random() * 0.003)
            except BaseException as e:
                failures.append(e)
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
        for t in threads: t.start()
        for t in threads: t.join()
        assert not failures, failures
        """,
        TILEGRAD_THREADS=str(workers),
    )


def test_a_forked_child_has_workers_of_its_own() -> None:
    in_child("""
        import os
        program = Mirrors(100, 10)
        for n in range(50): program.check(n)
        for _ in range(5):
            child = os.fork()
            for n in range(50): program.check(n)
            if child == 0:
                assert native.team().running == native.team().threads - 1
                Mirrors(30, 3).check()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        program.check()
    """)


def test_the_process_ends_while_workers_spin() -> None:
    for _ in range(5):
        assert in_child("program = Mirrors(100, 10); program.check(); print('end')", TILEGRAD_SPIN="1000000") == "end\n"


def test_an_interrupt_comes_after_the_run_and_leaves_no_worker() -> None:
    printed = in_child("""
        import os, signal, threading, time
        program = Mirrors(400, 1500, long=True)
        threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            while True:
                program.run()
        except KeyboardInterrupt:
            program.check()
            print("interrupted", os.getpid())
    """)
    word, pid = printed.split()
    assert word == "interrupted"
    assert not os.path.exists(f"/proc/{pid}")


def test_wrong_data_is_refused() -> None:
    in_child("""
        import pytest
        program = Mirrors(10, 1)
        with pytest.raises(TypeError, match="number of data"):
            program.table.run(program.x.address)
        with pytest.raises(TypeError):
            program.table.run(program.x.address, "y")
        with pytest.raises(OverflowError):
            program.table.run(program.x.address, 1 << 70)
        program.check()
    """)


def test_small_programs_wake_nobody() -> None:
    in_child("""
        program = Mirrors(10, 20, nanoseconds=100.0)
        assert program.table.is_single_threaded and len(program.table.segments) == 1
        for n in range(100): program.check(n)
        assert native.team().running == 0
    """)


def test_times_of_segments_rise() -> None:
    in_child("""
        program = Mirrors(100, 8, timed=True)
        for n in range(20):
            program.check(n)
            times = program.table.times
            assert len(times) == 9 and times == sorted(times) and times[0] > 0
    """)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_a_busy_neighbour_slows_little() -> None:
    """While another process keeps a core busy a program continues on the remaining cores.

    It can lose that core with a chunk taken, for a time slice, so a factor of 2.5 is expected; runners that wait for
    threads instead of chunks take 10 to 100 times as long.
    """
    printed = in_child("""
        import os, subprocess, sys, time
        program = Mirrors(100_000, 4, nanoseconds=100_000.0)
        def rate():
            start, runs = time.perf_counter(), 0
            while time.perf_counter() < start + 0.4:
                program.run()
                runs += 1
            return runs
        rate()
        ratios = []
        for core in sorted(os.sched_getaffinity(0))[:2] * 2:
            quiet = rate()
            code = f"import os; os.sched_setaffinity(0, {{{core}}})\\nwhile True: pass"
            busy = subprocess.Popen([sys.executable, "-c", code])
            time.sleep(0.1)
            try:
                ratios.append(quiet / rate())
            finally:
                busy.kill()
                busy.wait()
        print(*[round(r, 2) for r in ratios], native.team().wakes)
        assert min(ratios) < 5, ratios
    """)
    print(printed)


def test_systems_without_futexes_run_on_one_thread() -> None:
    in_child("""
        native.has_threads = lambda: False
        assert native.team().threads == 1
        for options in ({}, {"long": True}, {"timed": True}):
            program = Mirrors(50, 5, **options)
            for n in range(20): program.check(n)
        assert "declare i64 @syscall" not in native.source()
    """)
