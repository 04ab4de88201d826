/** What survives a power failure. */
export interface Luck {
  /** Whether a name that was changed and not synced is as it was before, or as it is now. */
  readonly name: (name: string) => "old" | "new";
  /** What a file that was not synced holds. */
  readonly bytes: (synced: Buffer, current: Buffer) => Buffer;
}

/** Nothing survives that was not synced. */
export const allLost: Luck = { name: () => "old", bytes: (synced) => synced };

/** Names survive, what they name does not: files are empty. */
export const bytesLost: Luck = { name: () => "new", bytes: (synced) => synced };

/** Bytes survive, names do not. */
export const namesLost: Luck = { name: () => "old", bytes: (_synced, current) => current };

/** Of the names, those that commit something survive; what they rest on does not, unless it was synced. */
export const commitsSurvive: Luck = {
  name: (name) => (/^part-.*\.parquet$|^_SUCCESS$/.test(name) ? "new" : "old"),
  bytes: (synced) => synced,
};

/** Each thing by chance, files cut off or with zeros in them too. */
export function anyLuck(random: () => number): Luck {
  return {
    name: () => (random() < 0.5 ? "old" : "new"),
    bytes: (synced, current) => {
      // What was appended may be lost, not what was flushed before it.
      const flushed = current.subarray(0, synced.length).equals(synced) ? synced.length : 0;
      const cut = flushed + Math.floor(random() * (current.length - flushed + 1));
      const zeros = Buffer.concat([current.subarray(0, cut), Buffer.alloc(current.length - cut)]);
      return [synced, current, current.subarray(0, cut), zeros][Math.floor(random() * 4)] ?? synced;
    },
  };
}
