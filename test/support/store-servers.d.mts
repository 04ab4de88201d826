type Found = { readonly program: string } | { readonly missing: string };

/** The script of Azurite; or why there is none. */
export function findAzurite(): Found;

/** The program of fake-gcs-server, or of a `version` of it; or why there is none. */
export function findFakeGcs(version?: string): Found;

export const azureAccount: string;
export const azureKey: string;

/** A SAS of the account of Azurite, valid for a day. */
export function azureSas(permissions?: string): string;
