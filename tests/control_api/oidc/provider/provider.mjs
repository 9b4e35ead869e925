// An OpenID Connect provider on the loopback: node provider.mjs PORT ACCOUNTS CLIENT
//
// ACCOUNTS is a file with an object of claims by name, read whenever somebody is looked up; CLIENT
// is the client's registration, JSON. Whoever is among the accounts signs in with any password.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import Provider from "oidc-provider";

const [, , port, accounts, client] = process.argv;
const found = (name) => JSON.parse(readFileSync(accounts, "utf8"))[name];
const server = createServer();
server.listen(Number(port), "127.0.0.1", () => {
  const issuer = `http://localhost:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [JSON.parse(client)],
    claims: { openid: ["sub"], profile: ["preferred_username", "groups"] },
    findAccount: (_ctx, name) =>
      found(name) && { accountId: name, claims: () => ({ sub: `subject-${name}`, ...found(name) }) },
    // What is asked for is granted: people are not asked twice.
    loadExistingGrant: async (ctx) => {
      const grant = new ctx.oidc.provider.Grant({
        clientId: ctx.oidc.client.clientId,
        accountId: ctx.oidc.session.accountId,
      });
      grant.addOIDCScope("openid profile");
      await grant.save();
      return grant;
    },
    features: { rpInitiatedLogout: { enabled: true } },
    cookies: { keys: ["a key of the tests"] },
  });
  server.on("request", provider.callback());
  console.log(`issuer ${issuer}`);
});
