import { createCondition } from "../../util/promises.js";
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

interface Amount {
  readonly tokens: number;
  readonly cost: number;
}

/** Sums of costs are off by less than this. */
const roundingError = 1e-9;

/** @param doing the act that messages begin with; @param limits what a run may spend in all */
export function createBudget(doing: string, limits: SpendingLimits, price: Price | undefined): Budget {
  const changed = createCondition();
  /** What this attempt may spend, what all workers had spent before it, and what it has spent. */
  let [allowed, earlier, workers] = [limits, { tokens: 0, cost: 0 }, 1];
  const used = { tokens: 0, cost: 0 };
  /** The worst cases of requests in flight, and how many these are; some of them wait to be sent again. */
  const held = { tokens: 0, cost: 0 };
  let [holders, waiting] = [0, 0];

  const amountOf = (count: TokenCount): Amount => ({
    tokens: count.prompt + count.completion,
    cost: price === undefined ? 0 : costOf(count, price),
  });

  const fits = ({ tokens, cost }: Amount): boolean =>
    used.tokens + held.tokens + tokens <= (allowed.tokens ?? Number.POSITIVE_INFINITY) &&
    used.cost + held.cost + cost <= (allowed.cost ?? Number.POSITIVE_INFINITY) + roundingError;

  const spentError = (): JobError => {
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
  };

  return {
    begin({ all, byWorker }, count) {
      const own = amountOf(byWorker);
      [earlier, workers] = [amountOf(all), count];
      // A part of what is left, and no more than this worker's part of the whole: what the others have begun to spend is
      // not known yet, and this worker may have started several times.
      const shareOf = (limit: number | undefined, by: number, byThis: number): number | undefined =>
        limit === undefined ? undefined : Math.max(0, Math.min((limit - by) / count, limit / count - byThis));
      allowed = {
        tokens: shareOf(limits.tokens, earlier.tokens, own.tokens),
        cost: shareOf(limits.cost, earlier.cost, own.cost),
      };
    },
    async reserve(count) {
      const worst = amountOf(count);
      while (!fits(worst)) {
        if (holders === waiting) {
          throw spentError();
        }
        await changed.wait();
      }

      add(held, worst); // at once: others that wait here must find it held
      holders += 1;
      return {
        spent: (tokens) => add(used, amountOf(tokens)),
        lost: () => add(used, worst),
        async ready() {
          while (!fits({ tokens: 0, cost: 0 })) {
            if (waiting + 1 === holders) {
              throw spentError();
            }
            waiting += 1;
            await changed.wait();
          }
        },
        end() {
          add(held, worst, -1);
          holders -= 1;
          if (holders === 0) {
            [held.tokens, held.cost] = [0, 0]; // sums of floating-point numbers do not return to 0
          }
          waiting = 0; // all check again: until they have, none of them counts as one that can free nothing
          changed.notify();
        },
      };
    },
  };
}

function add(to: { tokens: number; cost: number }, { tokens, cost }: Amount, sign: 1 | -1 = 1): void {
  to.tokens += sign * tokens;
  to.cost += sign * cost;
}
