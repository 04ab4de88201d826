/** The rate that a server accepts, learnt from its refusals (429) if no header states it. */
export interface LearntRate {
  /** The time from which on a request of this weight may be sent; 0: the rate is not known. */
  readyMs(weight: number, nowMs: number): number;
  sent(weight: number, nowMs: number): void;
  heard(answer: { readonly weight: number; readonly isRefused: boolean }, nowMs: number): void;
}

/** Answers are counted for at least this time, and until there are `leastAnswers`. */
const windowMs = 2000;
const leastAnswers = 10;
/** A smaller share is no sign of a limit: gateways and other users of an account cause some. */
const refusedShare = 0.1;
/** So many standard deviations more may be chance. */
const chanceDeviations = 2;
/** The rate that a server accepted while it refused more is about its limit: the new rate is a little lower. */
const decrease = 0.9;
/** Added to the rate for each window without refusals, as a share of the rate at the last decrease. */
const increase = 0.03;
/**
 * Windows after a decrease in which a server's limit shows again if it is near. If it does not, the rate was learnt while
 * the client or the server was slow, and grows by more and more.
 */
const nearWindows = 8;
const growth = 1.5;
/** At most what the rate allows in this time may be sent at once. */
const burstMs = 500;

interface RateState {
  /** undefined: nothing is known. */
  perMs: number | undefined;
  stepPerMs: number;
  /** Windows since the last decrease in which the rate grew. */
  grown: number;
  level: number;
  levelMs: number;
  window: { sinceMs: number; answers: number; refused: number; weight: number; taken: number };
}

/** Additive increase, multiplicative decrease, around the rate that the server takes. */
export function createLearntRate(): LearntRate {
  const state: RateState = { perMs: undefined, stepPerMs: 0, grown: 0, level: 0, levelMs: 0, window: windowFrom(0) };
  return {
    readyMs(weight, nowMs) {
      const { perMs } = state;
      if (perMs === undefined) {
        return 0;
      }
      const missing = weight - levelAt(state, { perMs, nowMs, weight });
      return missing <= 0 ? 0 : nowMs + missing / perMs;
    },
    sent(weight, nowMs) {
      state.level = (state.perMs === undefined ? 0 : levelAt(state, { perMs: state.perMs, nowMs, weight })) - weight;
      state.levelMs = nowMs;
    },
    heard({ weight, isRefused }, nowMs) {
      if (state.window.answers === 0) {
        state.window = windowFrom(nowMs);
      }
      const { window } = state;
      window.answers += 1;
      window.refused += isRefused ? 1 : 0;
      window.weight += weight;
      window.taken += isRefused ? 0 : weight;
      if (nowMs - window.sinceMs >= windowMs && window.answers >= leastAnswers) {
        learn(state, nowMs);
        state.window = windowFrom(nowMs);
      }
    },
  };
}

function learn(state: RateState, nowMs: number): void {
  const { sinceMs, answers, refused, weight, taken } = state.window;
  const takenPerMs = taken / (nowMs - sinceMs);
  if (refused > mostByChance(answers)) {
    const leastPerMs = weight / answers / 1000; // a request a second
    const isFirst = state.perMs === undefined;
    state.perMs = Math.max(takenPerMs * decrease, leastPerMs);
    state.stepPerMs = state.perMs * increase;
    state.grown = 0;
    state.level = isFirst ? 0 : state.level;
    state.levelMs = isFirst ? nowMs : state.levelMs;
  } else if (state.perMs !== undefined && takenPerMs > state.perMs / 2) {
    state.grown += 1;
    state.stepPerMs *= state.grown > nearWindows ? growth : 1;
    state.perMs += Math.min(state.stepPerMs, state.perMs);
  }
}

/** So many of the answers may be refusals although the server has no limit that is near. */
function mostByChance(answers: number): number {
  return refusedShare * answers + chanceDeviations * Math.sqrt(answers * refusedShare * (1 - refusedShare));
}

function windowFrom(sinceMs: number): RateState["window"] {
  return { sinceMs, answers: 0, refused: 0, weight: 0, taken: 0 };
}

interface LevelAt {
  readonly perMs: number;
  readonly nowMs: number;
  /** Of the next request. One that weighs more than a burst waits until the limit allows all of it. */
  readonly weight: number;
}

function levelAt({ level, levelMs }: RateState, { perMs, nowMs, weight }: LevelAt): number {
  return Math.min(Math.max(weight, perMs * burstMs), level + (nowMs - levelMs) * perMs);
}
