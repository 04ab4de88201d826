import { type Condition, createCondition } from "../../util/condition.js";
import { JobError } from "../../util/errors.js";
import { costOf, type Price, type SpendingLimits, type TokenCount } from "../paid-engine.js";

/** What a request may spend at most, until it is known what it did. */
export interface Reservation {
  /** Counts what the request spent. */
  spent(tokens: TokenCount): void;
  /** Counts the worst case: an answer was lost, which may have cost as much. The reservation stays. */
  lost(): void;
  /**
   * Waits until the request may be sent: again, after `lost`, its worst case must fit in addition to those that were lost.
   * @throws JobError BUDGET if it does not fit and no request is left that could free a part
   */
  ready(this: void): Promise<void>;
  /** Ends the reservation. What was not counted is free again. */
  end(): void;
}

/** Holds a run to its budget: before a request is sent, its worst case must fit into what requests in flight leave. */
export interface Budget {
  /**
   * Takes what attempts have spent from the limits.
   * @param earlier spent by all workers, and by this one
   * @param workers the processes that share the budget
   */
  begin(earlier: { readonly all: TokenCount; readonly byWorker: TokenCount }, workers: number): void;
  /**
   * Waits until a request fits.
   * @throws JobError BUDGET if it does not fit although no other request is in flight
   */
  reserve(worst: TokenCount): Promise<Reservation>;
}

export interface BudgetOptions {
  readonly doing: string;
  /** What a run may spend in all. */
  readonly limits: SpendingLimits;
  readonly price: Price | undefined;
}

interface Amount {
  readonly tokens: number;
  readonly cost: number;
}

interface BudgetState extends BudgetOptions {
  readonly changed: Condition;
  /** What this attempt may spend. */
  allowed: SpendingLimits;
  /** What was spent before, by all workers. */
  earlier: Amount;
  workers: number;
  readonly used: { tokens: number; cost: number };
  /** The worst cases of requests in flight, and how many these are; some of them wait to be sent again. */
  readonly held: { tokens: number; cost: number; count: number; waiting: number };
}

export function createBudget(options: BudgetOptions): Budget {
  const state: BudgetState = {
    ...options,
    changed: createCondition(),
    allowed: options.limits,
    earlier: nothing,
    workers: 1,
    used: { tokens: 0, cost: 0 },
    held: { tokens: 0, cost: 0, count: 0, waiting: 0 },
  };
  return {
    begin({ all, byWorker }, workers) {
      const { limits } = options;
      const spent = amountOf(state, all);
      const own = amountOf(state, byWorker);
      [state.earlier, state.workers] = [spent, workers];
      // A part of what is left, and no more than this worker's part of the whole: what the others have begun to spend is
      // not known yet, and this worker may have started several times.
      const shareOf = (limit: number | undefined, by: number, byThis: number): number | undefined =>
        limit === undefined ? undefined : Math.max(0, Math.min((limit - by) / workers, limit / workers - byThis));
      state.allowed = {
        tokens: shareOf(limits.tokens, spent.tokens, own.tokens),
        cost: shareOf(limits.cost, spent.cost, own.cost),
      };
    },
    reserve: (count) => reserve(state, amountOf(state, count)),
  };
}

/** @throws JobError BUDGET if the amount does not fit although nothing is in flight */
async function reserve(state: BudgetState, worst: Amount): Promise<Reservation> {
  const { held, changed } = state;
  while (!fits(state, worst)) {
    if (held.count === held.waiting) {
      throw spentError(state);
    }
    await changed.wait();
  }
  return hold(state, worst); // at once: others that wait here must find it held
}

/** @throws JobError BUDGET if what is held does not fit, and all of it waits */
async function untilHeldFits(state: BudgetState): Promise<void> {
  const { held, changed } = state;
  while (!fits(state, nothing)) {
    if (held.waiting + 1 === held.count) {
      throw spentError(state);
    }
    held.waiting += 1;
    await changed.wait();
  }
}

const nothing: Amount = { tokens: 0, cost: 0 };

function hold(state: BudgetState, worst: Amount): Reservation {
  const { held, used, changed } = state;
  add(held, worst);
  held.count += 1;
  return {
    spent: (tokens) => add(used, amountOf(state, tokens)),
    lost: () => add(used, worst),
    ready: () => untilHeldFits(state),
    end() {
      add(held, worst, -1);
      held.count -= 1;
      if (held.count === 0) {
        [held.tokens, held.cost] = [0, 0]; // sums of floating-point numbers do not return to 0
      }
      held.waiting = 0; // all check again: until they have, none of them counts as one that can free nothing
      changed.notify();
    },
  };
}

function amountOf({ price }: BudgetState, count: TokenCount): Amount {
  return { tokens: count.prompt + count.completion, cost: price === undefined ? 0 : costOf(count, price) };
}

function fits({ used, held, allowed }: BudgetState, { tokens, cost }: Amount): boolean {
  return (
    used.tokens + held.tokens + tokens <= (allowed.tokens ?? Number.POSITIVE_INFINITY) &&
    used.cost + held.cost + cost <= (allowed.cost ?? Number.POSITIVE_INFINITY) + roundingError
  );
}

function add(to: { tokens: number; cost: number }, { tokens, cost }: Amount, sign: 1 | -1 = 1): void {
  to.tokens += sign * tokens;
  to.cost += sign * cost;
}

/** Sums of costs are off by less than this. */
const roundingError = 1e-9;

function spentError({ doing, limits, earlier, used, workers }: BudgetState): JobError {
  const { tokens, cost } = limits;
  const limit = [
    ...(tokens === undefined ? [] : [`max_tokens is ${tokens}, used ${earlier.tokens + used.tokens}`]),
    ...(cost === undefined ? [] : [`max_cost is ${cost}, used ${Number((earlier.cost + used.cost).toPrecision(4))}`]),
  ].join("; ");
  const what = "paid, and the most that requests without an answer may have cost";
  const part = workers === 1 ? "" : `, of which each of the ${workers} workers may spend 1/${workers}`;
  return new JobError("BUDGET", `${doing}: the next request might exceed model.budget (${limit}: ${what})${part}`, {
    hint: "answers so far and committed rows are kept: raise the budget and run the same command to go on",
  });
}
