import { Client } from "pg";
import { watchQueries } from "../crash/pg-calls.mjs";

/** Stops the first query of this process that `moment` calls with such a statement, until it is told to go on. */
export function stopAt(
  moment: "before" | "inCopy",
  statement: RegExp,
): { reached: Promise<void>; go(): void } & Disposable {
  const gates: (() => void)[] = [];
  const reach: (() => void)[] = [];
  const reached = new Promise<void>((resolve) => {
    reach.push(resolve);
  });
  const unwatch = watchQueries(Client.prototype, {
    [moment]: async (call: string) => {
      if (gates.length === 0 && statement.test(call)) {
        reach[0]?.();
        await new Promise<void>((go) => {
          gates.push(go);
        });
      }
    },
  });
  const go = (): void => {
    gates[0]?.();
  };
  return {
    reached,
    go,
    [Symbol.dispose]() {
      go();
      unwatch();
    },
  };
}
