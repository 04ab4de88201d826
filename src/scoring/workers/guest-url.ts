/** What threads of others load to serve units. Nothing else is here: it is looked up before there is a decoder. */
export const unitGuest = new URL("./unit-guest.js", import.meta.url);
