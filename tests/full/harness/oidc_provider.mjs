// A certified OpenID Connect provider (npm: oidc-provider) on loopback, for one client.
// node oidc_provider.mjs '{"port", "redirect", "people": "file.json", "secret", "inToken": true}'
// With "audience" it issues signed tokens for that audience to the client itself, as to a workload; with "jwks" by those keys.
// The file maps a login to claims, and is read at each log-in, so that a test can change a person's groups.
import { readFileSync } from "node:fs";
import { Provider } from "oidc-provider";

const given = JSON.parse(process.argv[2]);
const provider = new Provider(`http://127.0.0.1:${given.port}`, {
  clients: [{
    client_id: "setpoint",
    client_secret: given.secret,
    redirect_uris: [given.redirect],
    grant_types: ["authorization_code", ...(given.audience ? ["client_credentials"] : [])],
    response_types: ["code"],
    ...(given.jwks ? { id_token_signed_response_alg: "ES256" } : {}),
  }],
  ...(given.jwks ? { jwks: given.jwks } : {}),
  features: given.audience ? {
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => given.audience,
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({
        scope: "run", audience: given.audience, accessTokenTTL: 300, accessTokenFormat: "jwt",
        jwt: { sign: { alg: given.jwks ? "ES256" : "RS256" } },
      }),
    },
  } : {},
  cookies: { keys: [given.secret] },
  conformIdTokenClaims: !given.inToken,
  claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["given_name", "family_name"], groups: ["groups"] },
  async findAccount(_context, sub) {
    const claims = JSON.parse(readFileSync(given.people, "utf8"))[sub];
    return claims && { accountId: sub, claims: async () => ({ sub, ...claims }) };
  },
});
provider.listen(given.port, "127.0.0.1", () => console.log("ready"));
