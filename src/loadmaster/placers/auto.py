"""A portfolio with a deadline: plain rules first, then proofs and search in parallel."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from loadmaster.cores import allowed_cores
from loadmaster.errors import InfeasibleError, NoPlacementError, UndecidedError
from loadmaster.placers._lineup import HUGE, LARGE, Lineup, lineup_of, part_of, slow
from loadmaster.placers.frame.board import Board, board_of, using
from loadmaster.placers.frame.feasible import first_feasible, prove_infeasible
from loadmaster.placers.frame.placer import Placer, parameters
from loadmaster.placers.frame.polish import MOST_TRIES, polish
from loadmaster.placers.frame.search import Budget, Progress, ProgressCallback, Search
from loadmaster.placers.frame.turns import OPENING, Turns, taking
from loadmaster.placers.learned.gdp import Gdp
from loadmaster.placers.rules.single import Single
from loadmaster.placers.search.multilevel import Multilevel
from loadmaster.problem import (
    OPTIMAL_GAP,
    Evaluator,
    Placement,
    Problem,
    SimulatedEvaluator,
    Solution,
)
from loadmaster.problem.bounds import Bound, lower_bound

__all__ = ["Auto"]

SECONDS = 30.0
"""The deadline where none is given."""
FIRST = 0.3
"""Share of the time in which a first feasible placement is looked for before the members begin."""

POLISH = 0.01
"""Share of the budget that is kept for the last touch."""

SINCE = 0.5
"""Share of the time after which large graphs are proved something about, where there is one core alone."""
LAST = 0.2
"""Share of the time, at its end, in which no rule begins any more."""
RULES = 0.25
"""Share of the time after which rules that have not had their turn yet take turns with the searchers."""
TURNS = 30
"""Turns of the searchers in the whole time,"""
SHORTEST, LONGEST = 0.1, 2.0
"""but none is shorter or longer than so many seconds."""
EPISODE = 2.0
"""Seconds (or an eighth of the time) after which a searcher begins anew from the best placement known to all; each
episode is half as long again as the one before."""
LONG = 8.0
"""Seconds that an episode of the search by groups has at least: large graphs take some to be put into groups."""
SOME = 1000
"""Ops from which on that has twice as much time as all other searchers, and needs it from the beginning: nobody has
opening turns."""
SLOW_TO_BEGIN: dict[type, tuple[float, float]] = {Multilevel: (3.5e-5, 0.2), Gdp: (4e-5, 0.5)}
"""Seconds per op until a member has its first placement where moves are cheap (groups are contracted; tracks see all
ops), and the share of the whole time that this may take: with less time it is left out."""
RISE, PATIENCE = 0.05, 0.2
"""A prover that another one follows goes on while it closes this share of the gap within this share of the time."""
PROVING = 1e-4
"""Seconds per op that proofs need to come to anything on large graphs; with less there are only the cheap bounds."""
AT_ONCE = 1000.0
"""Weight of rules that are late: they come before everybody else."""


GRACE = 0.3
"""Seconds that members have after the deadline to end; whoever is in the middle of a long step is left behind."""
PARTING = 10.0
"""Seconds that the process waits at its end for those."""


@dataclass(frozen=True)
class Auto:
    """Runs what suits the problem, and returns the best placement with the best bound.

    The best single device comes first, so that the answer is never worse. Plain rules follow, then the methods
    that prove something and those that search: every member learns at once of better placements and bounds
    (``frame/board.py``). It ends when the gap is closed or the deadline has come. The solution names the member
    that found the placement and the proof behind the bound.

    Under a budget of evaluations the members take turns in a fixed order with fixed shares, so that a run
    repeats.

    References
    ----------
    C. P. Gomes, B. Selman, "Algorithm portfolios", Artificial Intelligence 126, 2001.
    """

    gap: float = OPTIMAL_GAP
    """Stop at this relative gap; by default at what counts as optimal."""

    keeps_start: ClassVar[bool] = True
    name: ClassVar[str] = "auto"
    summary: ClassVar[str] = "a portfolio within one budget: rules, exact methods and search in parallel"

    def supports(self, problem: Problem) -> str | None:
        """Everything."""
        return None

    def members(self, problem: Problem) -> tuple[Placer, ...]:
        """All that may run on the problem."""
        lineup = lineup_of(problem)
        return (Single(), *lineup.rules, *lineup.provers, *lineup.searchers)

    def place(
        self,
        problem: Problem,
        *,
        budget: Budget,
        seed: int = 0,
        start: Placement | None = None,
        evaluator: Evaluator | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> Solution:
        """Run the portfolio until the gap is closed or the budget is used up (30 seconds if it sets no limit)."""
        began = time.perf_counter()
        prove_infeasible(problem)
        if budget == Budget():
            budget = Budget(seconds=SECONDS)
        run = _Run(began, self, problem, budget, seed, start, evaluator, on_progress)
        lineup = part_of(lineup_of(problem), *run.board.part)
        try:
            run.first()
            if budget.evaluations is not None or evaluator is not None:
                run.in_turn(lineup)
            else:
                run.side_by_side(lineup)
        except KeyboardInterrupt:
            if run.board.best is None:
                raise
            run.stopped = "interrupted"
        else:
            run.polish()
        return run.solution()


_left_behind: list[threading.Thread] = []


def _leave_behind(lanes: Iterable[threading.Thread]) -> None:
    """They end by themselves when they next look at the clock; the process does not end while they are in a solver."""
    if not _left_behind:
        atexit.register(_part)
    _left_behind[:] = [lane for lane in (*_left_behind, *lanes) if lane.is_alive()]


def _part() -> None:
    until = time.monotonic() + PARTING
    for lane in _left_behind:
        lane.join(max(until - time.monotonic(), 0.0))


class _Run:
    """One run of the portfolio."""

    def __init__(
        self,
        began: float,
        settings: Auto,
        problem: Problem,
        budget: Budget,
        seed: int,
        start: Placement | None,
        evaluator: Evaluator | None,
        on_progress: ProgressCallback | None,
    ) -> None:
        self.settings, self.problem, self.budget, self.seed = settings, problem, budget, seed
        self.start, self.evaluator, self.on_progress = start, evaluator, on_progress
        self.began = began
        # Where it is one of several runs on a problem, the caller has put up its board.
        self.board = board_of(problem) or Board(
            problem, Bound(0.0, "nothing proved in the time"), max(settings.gap, 0.0), began
        )
        self.stopped = "finished"
        self.lanes: list[threading.Thread] = []
        self.constructed = threading.Event()
        """The rules have had their time."""
        self.simulated = evaluator is None or isinstance(evaluator, SimulatedEvaluator)
        self.failures: list[BaseException] = []
        self.vain: NoPlacementError | None = None

    @property
    def whole(self) -> float:
        """Seconds of the whole run."""
        return self.budget.seconds if self.budget.seconds is not None else SECONDS

    def hurries(self, member: type) -> bool:
        """There is no time for this member on so large a graph."""
        per_op, share = SLOW_TO_BEGIN.get(member, (0.0, 1.0))
        return not slow(self.problem) and per_op * self.problem.n > share * self.whole

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    @property
    def seconds_left(self) -> float:
        """For the members."""
        return np.inf if self.budget.seconds is None else (1 - POLISH) * self.budget.seconds - self.seconds

    # -- one member ------------------------------------------------------------------------------------------

    def member(
        self, placer: Placer, budget: Budget, seed: int, over: Callable[[], bool] | None = None
    ) -> None:
        """Let a member work; what it finds goes to the board. Another may find something feasible where it does not.

        over : whether its time has ended before the budget.
        """
        if self.board.closed:
            return
        try:
            # Where costs are measured, nothing that a member simulates for itself may come onto the board.
            with using(self.board, over) if self.simulated else nullcontext():
                found = placer.place(
                    self.problem,
                    budget=budget,
                    seed=seed,
                    start=self.board.best,
                    evaluator=self.evaluator,
                    on_progress=self.tell,
                )
        except InfeasibleError as error:  # proved: nobody will find anything
            self.vain = error
            self.board.close()
            return
        except UndecidedError as error:
            self.vain = self.vain or error
            return
        self.board.count(found.evaluations)
        self.board.offer(found.placement, found.cost, found.found_by)
        if found.stopped == "interrupted":
            raise KeyboardInterrupt

    def tell(self, progress: Progress) -> None:
        """Pass a member's progress on, with what is known to all."""
        board = self.board
        if self.on_progress is not None and threading.current_thread() is threading.main_thread():
            known = Progress(
                f"auto: {progress.method}",
                self.seconds,
                board.evaluations + progress.evaluations,
                min(board.cost, progress.cost),
                max(board.bound.value, progress.bound),
                progress.note,
            )
            self.on_progress(known)

    # -- the parts of a run ----------------------------------------------------------------------------------

    def first(self) -> None:
        """The best single device, whatever the budget; then the given placement.

        Where no single device is feasible, others may still find something in the time that is left.
        """
        timed = self.budget.seconds is not None
        try:
            placement = first_feasible(self.problem, self.seed, self._first_is_over if timed else None)
        except UndecidedError as error:
            self.vain = error
            self._bound_now()
            return
        if timed and self.evaluator is None:  # an answer at once, before the devices are compared
            check = SimulatedEvaluator(self.problem)
            self.board.offer(placement, check.evaluate(placement).value, Single.name)
        self._bound_now()
        share = None if self.budget.evaluations is None else max(self.budget.evaluations // 2, 1)
        self.member(Single(), Budget(None, share), self.seed)
        if self.start is not None and not self.board.closed and self.evaluations_left > 0:
            with using(self.board), Search(self.problem, Budget(), "start", self.evaluator) as search:
                search.try_placement(self.start)
            self.board.count(search.evaluations)
            self.board.offer(self.start, search.cost, "start")

    def _bound_now(self) -> None:
        """The cheap bounds; of a very large graph they take seconds, and those who prove begin with them."""
        alone = (
            self.budget.seconds is None or self.budget.evaluations is not None or self.evaluator is not None
        )
        if alone or self.problem.n <= HUGE:
            self.board.prove(lower_bound(self.problem), "")

    def _first_is_over(self) -> bool:
        return self.budget.seconds is not None and self.seconds > FIRST * self.budget.seconds

    @property
    def evaluations_left(self) -> int:
        limit = self.budget.evaluations
        return 2**62 if limit is None else limit - int(POLISH * limit) - self.board.evaluations

    def in_turn(self, lineup: Lineup) -> None:
        """A fixed sequence: rules, provers with a share each, then the searchers with what is left."""
        members: list[tuple[Placer, float]] = [(rule, 0.1) for rule in lineup.rules]
        members += [(prover, 0.4) for prover in lineup.provers]
        members += [
            (searcher, 1.0 / (len(lineup.searchers) - i)) for i, searcher in enumerate(lineup.searchers)
        ]
        for placer, share in members:
            left, seconds = self.evaluations_left, self.seconds_left
            if left <= 0 or seconds <= 0:
                break
            part = None if self.budget.evaluations is None else max(1, int(share * left))
            limit = None if self.budget.seconds is None else share * seconds
            self.member(placer, Budget(limit, part), self.seed)
        if not self.board.closed:
            self.stopped = "budget"

    def side_by_side(self, lineup: Lineup) -> None:
        """One thread proves, another applies rules; every searcher has a thread of its own and waits for its turns."""
        length = min(max(self.whole / TURNS, SHORTEST), LONGEST)
        self.turns = Turns(
            length,
            lambda: self.board.closed or self.seconds_left <= 0,
            left=lambda: self.seconds_left,
            opening=OPENING if self.problem.n <= SOME else 0,
        )
        if self.problem.n > HUGE and not slow(
            self.problem
        ):  # one step of some is seconds long: nobody waits for it
            self.turns.widen(2)
        self.board.searched = bool(lineup.searchers)
        self.lanes = [self._lane(self._prove, lineup), self._lane(self._construct, lineup)]
        try:
            for lane in tuple(self.lanes):
                lane.start()
            while not self.board.closed and any(lane.is_alive() for lane in tuple(self.lanes)):
                for lane in tuple(self.lanes):
                    if lane.is_alive():
                        lane.join(0.05)
                        break
                if self.seconds_left <= 0:
                    self.board.close()
                    self.stopped = "budget"
                self.tell(Progress(self.board.found_by, 0.0, 0, np.inf, 0.0))
        finally:
            self.board.close()
            patience = time.perf_counter() + GRACE
            for lane in tuple(self.lanes):
                lane.join(max(patience - time.perf_counter(), 0.0))
            self.board.seal()
            _leave_behind(lane for lane in tuple(self.lanes) if lane.is_alive())
        if self.failures:
            raise self.failures[0]

    def _lane(self, work: Callable[[Lineup], None], lineup: Lineup) -> threading.Thread:
        """A thread whose failure ends the run and is carried to the caller's thread."""

        def run() -> None:
            try:
                work(lineup)
            except BaseException as error:
                self.failures.append(error)
                self.board.close()

        return threading.Thread(target=run, name="auto", daemon=True)

    def _prove(self, lineup: Lineup) -> None:
        self.board.prove(lower_bound(self.problem), "")
        # On large graphs provers take seconds to prepare, which would keep rules and, on one core, groups waiting.
        since = SINCE * self.whole if len(allowed_cores()) == 1 else 0.0
        while self.problem.n > LARGE and self.seconds_left > 0 and not self.board.closed:
            if self.constructed.wait(0.05) and self.seconds >= since:
                break
            time.sleep(0.02)
        brief, part = lineup.brief or (None, 1.0)
        hopeless = self.problem.n > HUGE and PROVING * self.problem.n > self.whole
        for prover in lineup.provers:
            if self.seconds_left <= 0 or hopeless:
                break
            followed = prover == brief and prover != lineup.provers[-1]
            over = self._lasting(prover, part * self.seconds_left) if followed else None
            self.member(prover, Budget(seconds=self.seconds_left), self.seed, over)
        if not slow(self.problem):  # there the two walks of one member are better off with a core each
            self.turns.widen(2)

    def _lasting(self, prover: Placer, seconds: float) -> Callable[[], bool]:
        """Whether the time of a prover that another follows is over: it has so many seconds, and goes on as long as its
        bound rises."""
        board, until = self.board, self.seconds + seconds
        bound, risen = board.bound.value, self.seconds

        def over() -> bool:
            nonlocal bound, risen
            now = self.seconds
            if board.proved_by == prover.name and board.bound.value - bound > RISE * (board.cost - bound):
                bound, risen = board.bound.value, now
            return now > until and now - risen > PATIENCE * self.whole

        return over

    def _construct(self, lineup: Lineup) -> None:
        """The rules, then the searchers, each in a thread; rules that are late take turns with them."""
        late: list[Placer] = list(lineup.rules)
        while (
            late and self.seconds_left > 0 and (self.seconds < RULES * self.whole or self.board.best is None)
        ):
            self.member(late.pop(0), Budget(seconds=self.seconds_left), self.seed)
        self.constructed.set()
        for number, placer in enumerate((*lineup.searchers, *late)):
            if self.board.closed or self.seconds_left <= 0:
                return
            lane = self._lane(partial(self._search, placer=placer, number=number), lineup)
            lane.start()
            self.lanes.append(lane)

    def _search(self, lineup: Lineup, placer: Placer, number: int) -> None:
        """One searcher, from the best placement known to all, again and again; a construction once."""
        starts_slowly = isinstance(placer, lineup.slow)  # it loses what it has built up when it begins anew
        if self.hurries(type(placer)):
            return
        late = placer in lineup.rules
        weight = self._weight(lineup) if starts_slowly else AT_ONCE if late else 1.0
        turn = self.turns.join(placer.name, weight, passing=late)
        if (
            late and self.seconds_left < LAST * self.whole
        ):  # some hold the interpreter for seconds on large graphs
            self.turns.leave(turn)
            return
        endless = getattr(placer, "unlimited", Budget()) != Budget()
        try:
            episode = 0
            part = 8
            if starts_slowly:
                part = 3 if self.problem.n > LARGE and not slow(self.problem, HUGE) else 1
            if (starts_slowly and self.seconds_left < part * LONG) or self.hurries(Multilevel):
                part = 1  # to begin anew would cost what has been reached so far
            length = max(EPISODE, self.seconds_left / part)
            while self.seconds_left > 0 and not self.board.closed:
                limit = Budget(seconds=min(length, self.seconds_left) if endless else self.seconds_left)
                before = self.seconds
                with taking(turn):
                    self.member(placer, limit, self.seed + 1000 * episode + 100_000 * number)
                if not endless or self.seconds - before < 1e-3:
                    return
                episode, length = episode + 1, 1.5 * length
        finally:
            self.turns.leave(turn)

    def _weight(self, lineup: Lineup) -> float:
        """Of searchers that begin slowly: on graphs of some size more than of all others together."""
        others = max(sum(not isinstance(searcher, lineup.slow) for searcher in lineup.searchers), 1)
        if self.problem.n > LARGE:
            return 3.0 * others
        return 2.0 * others if self.problem.n >= SOME else 3.0

    def polish(self) -> None:
        """Tidy the best placement up; its cost does not rise."""
        board, budget = self.board, self.budget
        if board.best is None or not self.simulated or self.problem.n > HUGE:
            return
        left = MOST_TRIES if budget.evaluations is None else budget.evaluations - board.evaluations
        found, cost, used = polish(
            self.problem,
            board.best,
            board.cost,
            evaluations=min(left, MOST_TRIES),
            over=lambda: budget.seconds is not None and self.seconds >= budget.seconds,
        )
        board.count(used)
        board.offer(found, cost, board.found_by)
        board.best = found

    # -- the answer ------------------------------------------------------------------------------------------

    def solution(self) -> Solution:
        """The best placement, who found it, and whose bound it is."""
        board = self.board
        if board.best is None:
            assert self.vain is not None
            raise self.vain
        simulated = self.simulated
        by = board.bound.name
        if board.proved_by and board.proved_by not in by:
            by = f"{by} ({board.proved_by})"
        return Solution(
            placement=board.best,
            cost=board.cost,
            bound=min(board.bound.value, board.cost) if simulated else 0.0,
            bound_by=by if simulated else "none: the cost is measured",
            method=self.settings.name,
            evaluations=board.evaluations,
            seconds=self.seconds,
            seed=self.seed,
            parameters=parameters(self.settings),
            history=tuple(board.history),
            found_by=board.found_by,
            stopped=self.stopped,
        )
