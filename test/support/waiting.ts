import { readFile } from "node:fs/promises";
import { constants } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

/** Waits until `condition` holds, however long that takes here: what it waits for in vain, the test's own limit ends. */
export async function until(condition: () => boolean | Promise<boolean>, pauseMs = 5): Promise<void> {
  while (!(await condition())) {
    await sleep(pauseMs);
  }
}

/** Promise.withResolvers, which Node 20 has not. */
export function latch<T>(): { readonly promise: Promise<T>; readonly resolve: (value: T) => void } {
  const settle: ((value: T) => void)[] = [];
  const promise = new Promise<T>((resolve) => {
    settle.push(resolve);
  });
  return { promise, resolve: (value) => settle[0]?.(value) };
}

/** Sends a signal, and waits until the process has taken it: a second one of the same kind would be lost before. */
export async function tell(
  child: { kill(signal: NodeJS.Signals): boolean; readonly pid?: number | undefined },
  signal: NodeJS.Signals,
): Promise<void> {
  child.kill(signal);
  const bit = 1n << BigInt(constants.signals[signal] - 1);
  await until(async () => {
    const status = await readFile(`/proc/${child.pid}/status`, "utf8").catch(() => ""); // it may have ended
    const [, pending = "0"] = /^ShdPnd:\s*([0-9a-f]+)/m.exec(status) ?? [];
    return (BigInt(`0x${pending}`) & bit) === 0n;
  });
}

/** Tells whether a process is stopped (SIGSTOP), as the kernel sees it. */
export async function isStopped(child: { readonly pid?: number | undefined } | undefined): Promise<boolean> {
  const status = await readFile(`/proc/${child?.pid}/stat`, "utf8").catch(() => ""); // it may have ended
  return / T /.test(status.slice(status.lastIndexOf(")")));
}

/** The process that `unshare` made: the first one of its namespace. */
export async function firstBelow(pid: number): Promise<number> {
  let found = "";
  await until(async () => {
    found = (await readFile(`/proc/${pid}/task/${pid}/children`, "utf8")).trim();
    return found !== "";
  });
  return Number(found);
}
