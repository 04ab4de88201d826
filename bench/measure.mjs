// Whole processes, from spawn to exit: wall time, CPU time and peak memory.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readdirSync, readFileSync, readSync } from "node:fs";

/** Often enough that little is missed at the end, seldom enough that the process does not feel it. */
const sampleMs = 20;
/** Of a program that starts others: all of /proc is read each time. */
const treeSampleMs = 100;
/** Clock ticks of /proc/<pid>/stat; USER_HZ is 100 on every Linux that Node runs on. */
const tickSeconds = 0.01;

/**
 * What a machine may set for reasons of its own, and what changes how long one contender takes to start: Node loads
 * these certificates at every start, 50 ms of them where they are a whole system's; Python without its bytecode
 * compiles what it imports.
 */
const unset = {
  NODE_EXTRA_CA_CERTS: undefined,
  NODE_OPTIONS: undefined,
  NODE_DISABLE_COMPILE_CACHE: undefined,
  PYTHONDONTWRITEBYTECODE: undefined,
};

/**
 * @typedef {object} Measure
 * @property {number} seconds wall time
 * @property {number} [cpuSeconds] user and system time of all threads, up to the last sample; absent: no /proc
 * @property {number} [peakMiB] resident memory at its highest; of several processes the sum, where shared pages count
 * for each
 * @property {string} said the end of its stdout
 * @property {string} complained the end of its stderr
 * @property {number | string} [code] exit code, or the signal that ended it
 * @property {string} [by] how a floor was reached
 */

/**
 * Runs a command to its end.
 * @param {readonly string[]} command the program, then its arguments
 * @param {{ tree?: boolean, mayFail?: boolean, onStart?: (pid: number) => void }} [options] tree: it starts processes of
 * its own, which count as well
 * @returns {Promise<Measure>}
 * @throws Error when it fails, with the end of what it said
 */
export async function measure([program, ...args], { tree = false, mayFail = false, onStart } = {}) {
  // onnxruntime's telemetry is off for all: no contender's time should depend on a network.
  const env = { ...process.env, ORT_DISABLE_TELEMETRY: "1", ...unset };
  let said = "";
  let result = "";
  const start = performance.now();
  const child = spawn(program, args, { env, stdio: ["ignore", "pipe", "pipe"] });
  child.stdout.setEncoding("utf8").on("data", (text) => {
    result = (result + text).slice(-2000);
  });
  child.stderr.setEncoding("utf8").on("data", (text) => {
    said = (said + text).slice(-20_000);
  });
  const last = () => void child.kill();
  process.on("exit", last); // should this process end first
  onStart?.(child.pid);
  const usage = tree ? usageOfTree(child.pid) : usageOfOne(child.pid);
  const sampling = setInterval(usage.sample, tree ? treeSampleMs : sampleMs);
  try {
    let end = start;
    child.once("exit", () => {
      end = performance.now();
    });
    const [code, signal] = await once(child, "close"); // all that it said has arrived
    if (code !== 0 && !mayFail) {
      throw new Error(`running ${[program, ...args].join(" ")}: it ended with ${signal ?? code}\n${said.slice(-2000)}`);
    }
    const seconds = (end - start) / 1000;
    return { seconds, ...usage.taken(), said: result, complained: said, code: signal ?? code };
  } finally {
    clearInterval(sampling);
    process.off("exit", last);
  }
}

/**
 * Runs commands at the same time, until the last has ended.
 * @param {readonly (readonly string[])[]} commands
 * @param {{ tree?: boolean }} [options] as of `measure`
 * @returns {Promise<Measure>} of all together
 */
export async function measureTogether(commands, options) {
  const all = await Promise.all(commands.map((command) => measure(command, options)));
  return {
    seconds: Math.max(...all.map(({ seconds }) => seconds)),
    cpuSeconds: sum(all.map(({ cpuSeconds }) => cpuSeconds)),
    peakMiB: sum(all.map(({ peakMiB }) => peakMiB)),
    said: all.at(-1).said,
  };
}

/** undefined when a value is: not measurable here. */
export function median(values) {
  if (values.includes(undefined)) {
    return undefined;
  }
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** undefined when a value is. */
function sum(values) {
  return values.includes(undefined) ? undefined : values.reduce((total, value) => total + value, 0);
}

function usageOfOne(pid) {
  let usage = {};
  return {
    sample: () => {
      usage = readUsage(pid) ?? usage;
    },
    taken: () => usage,
  };
}

/** Measures a process and its descendants, as long as each can be found through its parent. */
function usageOfTree(root) {
  const cpuSeconds = new Map();
  let peakMiB;
  return {
    sample: () => {
      let nowMiB = 0;
      for (const pid of descendants(root)) {
        const usage = readUsage(pid);
        if (usage !== undefined) {
          cpuSeconds.set(pid, usage.cpuSeconds);
          nowMiB += usage.nowMiB;
        }
      }
      peakMiB = nowMiB > 0 ? Math.max(peakMiB ?? 0, nowMiB) : peakMiB;
    },
    taken: () => (peakMiB === undefined ? {} : { cpuSeconds: sum([...cpuSeconds.values()]), peakMiB }),
  };
}

/** Returns a process and its descendants, as long as each can be found through its parent. */
export function descendants(root) {
  const children = new Map();
  for (const name of readProcesses()) {
    const pid = Number(name);
    const parent = Number(readStat(pid)?.[1]);
    children.set(parent, [...(children.get(parent) ?? []), pid]);
  }
  const found = [root];
  for (const pid of found) {
    found.push(...(children.get(pid) ?? []));
  }
  return found;
}

function readProcesses() {
  try {
    return readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  } catch {
    return [];
  }
}

/** The CPU seconds and the memory of a process; undefined: it is gone, or this is not Linux. */
export function readUsage(pid) {
  try {
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    const [peakMiB, nowMiB] = ["VmHWM", "VmRSS"].map((key) => {
      return Number(new RegExp(`^${key}:\\s+(\\d+) kB$`, "m").exec(status)?.[1]) / 1024;
    });
    const fields = readStat(pid);
    const cpuSeconds = (Number(fields?.[11]) + Number(fields?.[12])) * tickSeconds;
    return Number.isNaN(peakMiB + cpuSeconds) ? undefined : { cpuSeconds, peakMiB, nowMiB };
  } catch {
    return undefined;
  }
}

/** The fields of /proc/<pid>/stat from the third on, its state; undefined as above. */
function readStat(pid) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2).split(" "); // the command's name may hold spaces
  } catch {
    return undefined;
  }
}

/**
 * Reads the files once, so that they are in the page cache. Otherwise the first contender to read them would wait for the
 * disk: the kernel may have dropped pages that were read minutes ago, even while memory is free.
 */
export function readThrough(files) {
  const buffer = Buffer.alloc(1024 * 1024);
  for (const file of files) {
    const opened = openSync(file);
    while (readSync(opened, buffer) > 0);
    closeSync(opened);
  }
}
