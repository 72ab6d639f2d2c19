/** Serves the public key of an issuer of tokens, and prints a token of it: `node bench/issuer.ts`. The token is valid for a day. */
import { createServer } from 'node:http';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import { AUDIENCE, ISSUER } from './guards.ts';
import { listenOnLoopback } from './loopback.ts';

const alg = 'ES256';
const { publicKey, privateKey } = await generateKeyPair(alg, { extractable: true });
const keys = [{ ...(await exportJWK(publicKey)), kid: '1', alg }];
const token = await new SignJWT({ groups: ['engineering'], scope: 'mcp' })
  .setProtectedHeader({ alg, kid: '1', typ: 'at+jwt' })
  .setIssuer(ISSUER)
  .setAudience(AUDIENCE)
  .setSubject('bench')
  .setExpirationTime('1d')
  .sign(privateKey);
const server = createServer((_request, response) => {
  response.setHeader('content-type', 'application/json').end(JSON.stringify({ keys }));
});
const port = await listenOnLoopback(server);
console.log(JSON.stringify({ msg: 'listening', url: `http://127.0.0.1:${port}`, token }));
