/** A time of day: 06:00. Two of them compare as texts. */
export const timeOfDay = /^([01]\d|2[0-3]):[0-5]\d$/;
