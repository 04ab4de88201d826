import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { v8Flags } from "#src/start/v8-flags.js";

/** Of processor time, for a command. */
export const limitCpuMs = 10_000;
/** A process that says nothing for so long hangs, however busy the machine is. */
const hangMs = 60_000;
export const limitKib = 600_000_000 / 1024;

/** Two at a time: CI machines have two cores. */
const processes = 2;
/** Then a process makes room for a new one, so that its peak of memory stays that of few commands. */
const commandsEach = 60;
const childModule = fileURLToPath(new URL("child.mjs", import.meta.url));
const bundledWorkers = new URL("../support/bundled-workers.mjs", import.meta.url).href;

/** How a command ended, or the process that carried it out. */
export type Ended =
  | {
      readonly kind: "answered";
      readonly code: number;
      readonly stdout: string;
      readonly stderr: string;
      readonly peakKib: number;
      readonly cpuMs: number;
    }
  | { readonly kind: "died"; readonly how: string };

interface Member {
  readonly child: ChildProcess;
  /** All of its stderr that did not go through Node: what native code says before it aborts. */
  native: string;
  commands: number;
}

/** Processes that carry out commands; one that dies or hangs is that command's end only, and is replaced. */
export interface Processes extends AsyncDisposable {
  run(args: readonly string[]): Promise<Ended>;
}

/** A place for one process; its holder has the process carry out a command. */
interface Seat {
  member: Member | undefined;
}

export function startProcesses(): Processes {
  const seats = Array.from({ length: processes }, (): Seat => ({ member: undefined }));
  const free = [...seats];
  const waiting: ((seat: Seat) => void)[] = [];
  return {
    async run(args) {
      const seat = free.pop() ?? (await new Promise<Seat>((resolve) => waiting.push(resolve)));
      try {
        return await carryOutIn(seat, args);
      } finally {
        const next = waiting.shift() ?? ((left: Seat) => free.push(left));
        next(seat);
      }
    },
    async [Symbol.asyncDispose]() {
      const ends = await Promise.all(
        seats.map(async ({ member }) => (member === undefined ? undefined : await stop(member))),
      );
      const how = ends.find((one) => one !== undefined);
      if (how !== undefined) {
        throw new Error(how);
      }
    },
  };
}

async function carryOutIn(seat: Seat, args: readonly string[]): Promise<Ended> {
  const member = seat.member ?? startMember();
  seat.member = undefined;
  const ended = await carryOut(member, args);
  if (ended.kind === "died") {
    return ended;
  }
  member.commands += 1;
  if (member.commands < commandsEach && ended.peakKib < limitKib) {
    seat.member = member;
    return ended;
  }
  const how = await stop(member);
  return how === undefined ? ended : { kind: "died", how };
}

function startMember(): Member {
  const child = fork(childModule, {
    execArgv: [...v8Flags, "--import", bundledWorkers],
    stdio: ["ignore", "ignore", "pipe", "ipc"],
  });
  const member: Member = { child, native: "", commands: 0 };
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    member.native += text;
  });
  return member;
}

async function carryOut(member: Member, args: readonly string[]): Promise<Ended> {
  const { child } = member;
  return await new Promise((resolve) => {
    const end = (ended: Ended): void => {
      clearTimeout(timer);
      child.removeAllListeners("message").removeAllListeners("exit");
      resolve(ended);
    };
    const timer = setTimeout(() => {
      child.kill("SIGKILL");
      end({ kind: "died", how: `no answer after ${hangMs} ms` });
    }, hangMs);
    child.once("message", (answer) => {
      end({ kind: "answered", ...(answer as Omit<Extract<Ended, { kind: "answered" }>, "kind">) });
    });
    child.once("exit", (code, signal) => {
      end({ kind: "died", how: `the process ended with ${signal ?? code}: ${member.native}` });
    });
    child.send([...args]);
  });
}

/** Lets a process end by itself; says how it ended where that was not well. */
async function stop(member: Member): Promise<string | undefined> {
  const { child } = member;
  return await new Promise((resolve) => {
    const timer = setTimeout(() => child.kill("SIGKILL"), hangMs);
    child.once("exit", (code, signal) => {
      clearTimeout(timer);
      resolve(
        code === 0 ? undefined : `when its work was done, the process ended with ${signal ?? code}: ${member.native}`,
      );
    });
    child.disconnect();
  });
}
