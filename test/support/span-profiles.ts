import {
  parseSpanProfile,
  type SpanProfile,
  spanProfileTexts,
  withPrivatePart,
  withSealed,
} from "#src/checks/span-profile.js";

/** All of a profile as text, with the part that targets seal as it is. */
export function wholeProfileText(profile: SpanProfile): string {
  const { profile: text, privateProfile } = spanProfileTexts(profile);
  return privateProfile === undefined ? text : withSealed(text, privateProfile);
}

/** Reads what `wholeProfileText` wrote. */
export function parseWholeText(text: string): SpanProfile {
  const { profile, sealed } = parseSpanProfile(text);
  return sealed === undefined ? profile : withPrivatePart(profile, sealed);
}
