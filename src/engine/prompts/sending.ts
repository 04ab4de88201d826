import type { TokenCount } from "../paid-engine.js";
import type { CountedRequests } from "./kept-answers.js";

/** What becomes of a prompt that is sent, as the journal must know it: each time that it is sent counts as a request. */
export interface Sending {
  /** Waits until the journal allows the request. Called right before it is sent. */
  begin(this: void): Promise<void>;
  /** The server has refused the request: it costs nothing. */
  free(this: void): void;
  /** Its answer was lost: it may have cost as much as it can. */
  lost(this: void): void;
  /** Ends it in any case. An answer that came is on its way to the journal. */
  end(this: void): void;
}

/** @param worst the most tokens of the request; @param onLost called when an answer was lost */
export function openSending({ sent, addLost }: CountedRequests, worst: TokenCount, onLost: () => void): Sending {
  let isOpen = false;
  const end = (): void => {
    if (isOpen) {
      sent.end(worst);
    }
    isOpen = false;
  };
  return {
    async begin() {
      await sent.take(worst);
      isOpen = true;
    },
    free: end,
    lost() {
      if (isOpen) {
        onLost();
        addLost(worst); // before the request ends: one of both always counts it
        end();
      }
    },
    end,
  };
}
