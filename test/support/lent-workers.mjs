// Lends worker threads that have a session of a model to one run after another of the same process: starting a thread
// and ONNX Runtime in it takes a third of the processor time of a run of a few hundred rows. Plain JavaScript: processes
// that tests start import it, too.
import { EventEmitter } from "node:events";

/** More threads are rarely used at once; each holds the model that it had last. */
const mostIdle = 3;

/** Idle threads, the one that was used last at the end. */
const idle = [];

/** What a thread may know of this process: it has a copy of the environment of when it was started. */
const surroundings = () => JSON.stringify(process.env);

/**
 * Acts as a worker thread for its creator. When it is closed it goes on as another one, unless something of its session is
 * left to do: it tells that it has ended, and so it has for those who used it.
 */
class LentWorker extends EventEmitter {
  #thread;
  #unanswered = new Set();
  #isClosing = false;
  #mayBeLent = true;

  constructor(thread) {
    super();
    this.#thread = thread;
    thread.user = this;
    thread.worker.ref();
  }

  postMessage(message, transfer) {
    if (message.rpc === "notice" && message.name === "close" && this.#mayBeLent) {
      this.#isClosing = true;
      this.#endIfAnswered();
      return;
    }
    if (message.rpc === "call") {
      this.#unanswered.add(message.id);
      // A profile is written when the session is closed; a device's memory is free only then.
      const { profile, device = "cpu" } = message.name === "open" ? message.body : {};
      this.#mayBeLent &&= profile === undefined && device === "cpu";
    }
    this.#thread.worker.postMessage(message, transfer);
  }

  hear(message) {
    this.emit("message", message);
    if (message.rpc === "result" || message.rpc === "error") {
      this.#unanswered.delete(message.id);
      this.#endIfAnswered();
    }
  }

  ref() {
    this.#thread.worker.ref();
  }

  unref() {
    this.#thread.worker.unref();
  }

  #endIfAnswered() {
    if (this.#isClosing && this.#unanswered.size === 0 && this.#thread.user === this) {
      this.#thread.user = undefined;
      giveBack(this.#thread);
      setImmediate(() => this.emit("exit", 0));
    }
  }
}

/** Returns an idle thread that runs `file`, else a new one. @param start starts it */
export function lendWorker(file, start) {
  const around = surroundings();
  const index = idle.findLastIndex((thread) => thread.file === file && thread.around === around);
  const [thread] = index < 0 ? [newThread({ file, around }, start)] : idle.splice(index, 1);
  return new LentWorker(thread);
}

function newThread(what, start) {
  const thread = { ...what, worker: start(), user: undefined };
  thread.worker.on("message", (message) => thread.user?.hear(message));
  for (const event of ["error", "messageerror", "exit"]) {
    thread.worker.on(event, (value) => {
      if (event === "exit" && idle.includes(thread)) {
        idle.splice(idle.indexOf(thread), 1);
      }
      thread.user?.emit(event, value);
    });
  }
  return thread;
}

function giveBack(thread) {
  thread.worker.unref();
  idle.push(thread);
  if (idle.length > mostIdle) {
    idle.shift().worker.postMessage({ rpc: "notice", name: "close", body: undefined });
  }
}
