import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { clientTls, serverTls } from '../../../src/config/schema/tls-schema.ts';
import { makeCertificate } from '../../support/certificate.ts';

const [made, other] = [await makeCertificate(), await makeCertificate('other')];
after(() => Promise.all([made, other].map((one) => one[Symbol.asyncDispose]())));

const messageOf = (schema: typeof serverTls | typeof clientTls, value: object) =>
  schema
    .safeParse(value)
    .error?.issues.map(({ path, message }) => `${path.join('.')}: ${message}`)
    .join() ?? '';

test('a certificate with its key is accepted, also with those of its issuers', () => {
  const { cert, key } = made;
  assert.equal(messageOf(serverTls, { cert, key }), '');
  assert.equal(messageOf(serverTls, { cert: `${cert}${other.cert}`, key }), '');
  assert.equal(messageOf(clientTls, { ca: other.cert, cert, key }), '');
});

// SEC-14
test('a certificate that no connection could use is refused with the config', () => {
  const { cert, key } = made;
  const broken = other.cert.replace(/\n[A-Za-z0-9+/]{64}\n/, '\nAAAA\n');
  assert.match(messageOf(serverTls, { cert: other.cert, key }), /^key: the key does not belong to the certificate/);
  assert.match(
    messageOf(serverTls, { cert: `${cert}${broken}`, key }),
    /^key: the certificate or its key cannot be read/,
  );
  assert.match(messageOf(clientTls, { ca: broken }), /^ca: the certificates cannot be read/);
  assert.match(messageOf(clientTls, { cert }), /: a client certificate needs "cert" and "key"/);
});

test('a path in the place of a certificate or key is one mistake, at its setting', () => {
  const { cert, key } = made;
  const expected = (name: string, file: string) => `${name}: expected the text of a PEM file; write "\${file:${file}}"`;
  for (const schema of [serverTls, clientTls]) {
    assert.equal(messageOf(schema, { cert: '/etc/cert.pem', key }), expected('cert', 'cert.pem'));
    assert.equal(messageOf(schema, { cert, key: '/etc/key.pem' }), expected('key', 'key.pem'));
  }
  assert.equal(messageOf(clientTls, { ca: '/etc/ca.pem', cert, key }), expected('ca', 'ca.pem'));
});
