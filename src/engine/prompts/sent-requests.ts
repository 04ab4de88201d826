import { randomUUID } from "node:crypto";
import { awaitedLater } from "../../util/promises.js";
import type { TokenCount } from "../paid-engine.js";
import type { RecordOfWrite } from "./journal-writing.js";
import { addRequests, noRequests, ofNoRow, type RequestSum, sentText } from "./unanswered.js";

/**
 * What the journal of a run has of the requests of an attempt: how many it may send, and how many of these are over. The
 * difference is what the attempt may have paid for without a stored answer if it is killed. So no request is sent before
 * the journal allows it; each write allows about as many requests as are sent until the next one.
 */
export interface SentRequests {
  /** Waits until the journal allows another request. @param worst the most tokens that it may take */
  take(worst: TokenCount): Promise<void>;
  /** Ends a request that was taken: its answer is to be written, or it costs nothing. */
  end(worst: TokenCount): void;
  /** The record for a write that begins now. @param isAlone nothing else is to be written */
  record(isAlone: boolean): RecordOfWrite | undefined;
}

interface SentOptions {
  /** Writes a record, and resolves when it is durable; undefined: no journal is kept. */
  readonly flush: () => Promise<void> | undefined;
  readonly worker: () => number;
  /** The share of the budget's rest that requests may take; 0 where nothing is limited. */
  readonly shareOfBudget: (requests: RequestSum) => number;
}

interface SentState extends SentOptions {
  readonly attempt: string;
  readonly taken: ReturnType<typeof noRequests>;
  readonly ended: ReturnType<typeof noRequests>;
  /** Requests that wait until they are allowed. */
  readonly wanted: ReturnType<typeof noRequests>;
  /** What the journal allows for certain. */
  allowed: RequestSum;
  /** What its last record says. */
  recorded: { readonly number: number; readonly sent: number; readonly ended: number };
  takenBefore: number;
  /** About how many requests are sent between two writes. */
  recent: number;
  /** Whether a write was asked for since little was left. */
  isLow: boolean;
}

/** Where less than this share of what is sent between two writes is allowed still, the next write begins. */
const lowShare = 0.25;
/** Where requests had to wait for a write, so many times as many are allowed; where many are left, by this part as many. */
const growth = 2;
/** The share of the budget's rest that is allowed ahead, at most: after a kill it counts as spent. */
const budgetShare = 0.05;

export function createSentRequests(options: SentOptions): SentRequests {
  const state: SentState = {
    ...options,
    attempt: randomUUID(),
    taken: noRequests(),
    ended: noRequests(),
    wanted: noRequests(),
    allowed: noRequests(),
    recorded: { number: 0, sent: 0, ended: 0 },
    takenBefore: 0,
    recent: 0,
    isLow: false,
  };
  return {
    take: (worst) => take(state, oneRequest(worst)),
    end(worst) {
      addRequests(state.ended, oneRequest(worst));
    },
    record: (isAlone) => recordOf(state, isAlone),
  };
}

async function take(state: SentState, request: RequestSum): Promise<void> {
  const { taken, wanted, flush } = state;
  while (!fits(state, request)) {
    addRequests(wanted, request);
    const written = flush();
    try {
      await written;
    } finally {
      addRequests(wanted, request, -1);
    }
    if (written === undefined) {
      break;
    }
  }
  addRequests(taken, request);
  if (state.allowed.requests - taken.requests < lowShare * state.recent && !state.isLow) {
    state.isLow = true;
    void awaitedLater(flush() ?? Promise.resolve()); // no request waits for it if it is quick enough
  }
}

function fits({ taken, allowed }: SentState, request: RequestSum): boolean {
  const next = plus(taken, request);
  return next.requests <= allowed.requests && next.prompt <= allowed.prompt && next.completion <= allowed.completion;
}

function recordOf(state: SentState, isAlone: boolean): RecordOfWrite | undefined {
  const { attempt, worker, taken, ended, wanted, recorded } = state;
  const isIdle = taken.requests === ended.requests;
  const isStale = recorded.sent !== taken.requests || recorded.ended !== ended.requests;
  const wasTooLittle = wanted.requests > 0 || state.isLow;
  state.isLow = false;
  if (taken.requests + wanted.requests === 0 || (isAlone && !wasTooLittle && !(isIdle && isStale))) {
    return undefined;
  }
  const sent = nextAllowed(state, wasTooLittle);
  const number = recorded.number + 1;
  state.recorded = { number, sent: sent.requests, ended: ended.requests };
  state.allowed = leastOf(state.allowed, sent); // until it is written, this record and the one before must both hold
  return {
    record: { request: ofNoRow(), answer: sentText({ attempt, number, worker: worker(), sent, ended }) },
    onDurable() {
      state.allowed = sent;
    },
  };
}

/** What is allowed next: all that wait, and as many as are sent until the next write; none where nothing is under way. */
function nextAllowed(state: SentState, wasTooLittle: boolean): RequestSum {
  const { taken, ended, wanted, takenBefore } = state;
  const since = taken.requests - takenBefore;
  state.takenBefore = taken.requests;
  state.recent = wasTooLittle ? growth * Math.max(1, since) : Math.max(since, Math.floor(state.recent / growth));
  const due = plus(taken, wanted);
  const isIdle = due.requests === ended.requests;
  const ahead = timesAs(due, isIdle || due.requests === 0 ? 0 : state.recent / due.requests);
  const share = state.shareOfBudget(ahead);
  return plus(due, share <= budgetShare ? ahead : timesAs(ahead, budgetShare / share));
}

function timesAs({ requests, prompt, completion }: RequestSum, times: number): RequestSum {
  return {
    requests: Math.floor(times * requests),
    prompt: Math.ceil(times * prompt),
    cached: 0,
    completion: Math.ceil(times * completion),
  };
}

function oneRequest({ prompt, completion }: TokenCount): RequestSum {
  return { requests: 1, prompt, cached: 0, completion };
}

function plus(sum: RequestSum, more: RequestSum): RequestSum {
  const both = { ...sum };
  addRequests(both, more);
  return both;
}

function leastOf(sum: RequestSum, other: RequestSum): RequestSum {
  return {
    requests: Math.min(sum.requests, other.requests),
    prompt: Math.min(sum.prompt, other.prompt),
    cached: 0,
    completion: Math.min(sum.completion, other.completion),
  };
}
