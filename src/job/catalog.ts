import { proxiesOf } from "../base/http/request.js";
import { catalogTable, type CatalogLogin, type LoadTable } from "../sources/lake/rest-catalog.js";
import { type CatalogSpec, tableName } from "./jobfile/catalog-spec.js";
import type { Tools } from "./attempt.js";
import { readHeader, readSecret } from "./reading.js";

interface CatalogTools extends Tools {
  readonly where: (path: readonly string[]) => string;
}

/** Opens a table of the catalog that a spec names. Nothing is asked, and no secret is read, before it is loaded. */
export function openCatalogTable(spec: CatalogSpec, table: string, tools: CatalogTools): LoadTable {
  const { retry, signal } = tools;
  const name = tableName(table);
  if (name === undefined) {
    throw new Error("a spec whose table has no name in its catalog has passed its check");
  }
  const { url, warehouse, credentials } = spec;
  let load: LoadTable | undefined;
  return async () => {
    load ??= catalogTable(
      {
        url,
        warehouse,
        login: await loginOf(spec, tools),
        isVending: credentials === "vended",
        retry,
        signal,
        findProxy: proxiesOf(process.env),
      },
      name,
      `reading table ${table}`,
    );
    return await load();
  };
}

function keyOf(...path: readonly string[]): string[] {
  return ["input", "catalog", ...path];
}

async function loginOf({ url, token, oauth2, auth }: CatalogSpec, tools: CatalogTools): Promise<CatalogLogin> {
  const { folder, where } = tools;
  const at = (...path: readonly string[]) => ({ folder, key: where(keyOf(...path)) });
  if (auth === "sigv4") {
    const { signAws } = await import("./served-models.js");
    return { kind: "signed", sign: await signAws([url], keyOf("auth"), "execute-api", tools) };
  }
  if (oauth2 !== undefined) {
    const { client_id: clientId, client_secret: secret, scope, token_url: tokenUrl } = oauth2;
    const clientSecret = (): Promise<string> => readSecret(secret, at("oauth2", "client_secret"));
    return { kind: "oauth2", clientId, clientSecret, scope, tokenUrl };
  }
  return token === undefined ? { kind: "none" } : { kind: "token", token: () => readHeader(token, at("token")) };
}
