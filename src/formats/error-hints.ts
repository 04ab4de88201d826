/** The hint for a shard that is damaged, or was never whole. */
export const rewriteShard = "write the shard again, or take it out of input.path";
