// A whole process, from spawn to exit: wall time, CPU time and peak memory.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";

/** Often enough that little is missed at the end, seldom enough that the process does not feel it. */
const sampleMs = 20;
/** Clock ticks of /proc/<pid>/stat; USER_HZ is 100 on every Linux that Node runs on. */
const tickSeconds = 0.01;

/**
 * @typedef {object} Measure
 * @property {number} seconds wall time
 * @property {number} [cpuSeconds] user and system time of all threads, up to the last sample; absent: no /proc
 * @property {number} [peakMiB] resident memory at its highest
 * @property {string} said the end of its stdout
 */

/**
 * Runs a command to its end. No contender starts processes of its own, so /proc/<pid> is all of it.
 * @param {readonly string[]} command the program, then its arguments
 * @returns {Promise<Measure>}
 * @throws Error when it fails, with the end of what it said
 */
export async function measure([program, ...args]) {
  // onnxruntime's telemetry is off for all: nobody's time should hang on a network.
  const env = { ...process.env, ORT_DISABLE_TELEMETRY: "1" };
  /** @type {{ cpuSeconds?: number, peakMiB?: number }} */
  let usage = {};
  let said = "";
  let result = "";
  const start = performance.now();
  const child = spawn(program, args, { env, stdio: ["ignore", "pipe", "pipe"] });
  child.stdout.setEncoding("utf8").on("data", (text) => {
    result = (result + text).slice(-2000);
  });
  child.stderr.setEncoding("utf8").on("data", (text) => {
    said = (said + text).slice(-2000);
  });
  const last = () => void child.kill();
  process.on("exit", last); // should this process end first
  const sampling = setInterval(() => {
    usage = readUsage(child.pid) ?? usage;
  }, sampleMs);
  try {
    let end = start;
    child.once("exit", () => {
      end = performance.now();
    });
    const [code, signal] = await once(child, "close"); // all that it said has arrived
    if (code !== 0) {
      throw new Error(`running ${[program, ...args].join(" ")}: it ended with ${signal ?? code}\n${said}`);
    }
    return { seconds: (end - start) / 1000, cpuSeconds: usage.cpuSeconds, peakMiB: usage.peakMiB, said: result };
  } finally {
    clearInterval(sampling);
    process.off("exit", last);
  }
}

/** undefined: the process is gone, or this is not Linux. */
function readUsage(pid) {
  try {
    const peakKiB = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // Fields 14 and 15, counted from the command's closing bracket: its name may hold spaces.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const cpuSeconds = (Number(fields[11]) + Number(fields[12])) * tickSeconds;
    return peakKiB === undefined ? undefined : { cpuSeconds, peakMiB: Number(peakKiB) / 1024 };
  } catch {
    return undefined;
  }
}
