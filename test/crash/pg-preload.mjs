/*
 * Given to node with --import: writes down each statement that is sent to Postgres, and ends or stops the process
 * at one of them.
 *
 *   CRASH_TRACE  a file to which each statement is appended, a line each
 *   CRASH_AT     <before|sent|after|torn> <statement>, as the trace names it: dies by SIGKILL there
 *   CRASH_STOP   the same: stops there, by SIGSTOP
 */
import { EventEmitter } from "node:events";
import { appendFileSync } from "node:fs";
import { isMainThread } from "node:worker_threads";
import { watchQueries } from "./pg-calls.mjs";

const { CRASH_TRACE: trace, CRASH_AT: dieAt, CRASH_STOP: stopAt } = process.env;

const at = (moment) => (call) => {
  if (`${moment} ${call}` === dieAt) {
    process.kill(process.pid, "SIGKILL");
    for (;;) {
      // nothing runs on, should the signal take its time
    }
  }
  if (`${moment} ${call}` === stopAt) {
    process.kill(process.pid, "SIGSTOP");
  }
};

/** Calls back once, with the prototype of the clients of `pg`, before the first of them connects: the bundle has its own. */
function onFirstClient(use) {
  const original = Object.getOwnPropertyDescriptor(EventEmitter.prototype, "on");
  EventEmitter.prototype.on = function (...args) {
    if (typeof this.query === "function" && this.connectionParameters !== undefined) {
      Object.defineProperty(EventEmitter.prototype, "on", original);
      use(Object.getPrototypeOf(this));
    }
    return original.value.apply(this, args);
  };
}

if (isMainThread && (trace ?? dieAt ?? stopAt) !== undefined) {
  const before = at("before");
  const callbacks = {
    before: (call) => {
      if (trace !== undefined) {
        appendFileSync(trace, `${call}\n`);
      }
      before(call);
    },
    sent: at("sent"),
    after: at("after"),
    inCopy: at("torn"),
  };
  onFirstClient((clients) => watchQueries(clients, callbacks));
}
