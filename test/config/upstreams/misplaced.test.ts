import assert from 'node:assert/strict';
import { test } from 'node:test';

import { loadText, problemsOf } from '../../support/config-file.ts';
import { shortened } from '../../support/test-name.ts';

const WEB = 'url: https://example.com/mcp';

const REFUSED: readonly (readonly [entry: string, problem: string])[] = [
  [`${WEB}, sandbox: {}`, 'sandbox: this entry connects to a URL and starts no program; remove it'],
  [
    `${WEB}, processLimits: {memory: 1GiB}`,
    'processLimits: this entry connects to a URL and starts no program; remove it',
  ],
  [
    `type: http, command: x, ${WEB}, sandbox: {}`,
    'sandbox: this entry connects to a URL and starts no program; remove it',
  ],
  [
    `type: sse, ${WEB}, era: modern`,
    'era: HTTP+SSE is the transport of 2024-11-05; remove "era", or write type "http"',
  ],
  ['command: x, tls: {}', 'tls: is for a "url", and this entry starts a program; remove it'],
];

for (const [entry, problem] of REFUSED) {
  // N-12
  test(`a key that could do nothing is a problem: ${shortened(entry, 30)}`, async () => {
    const [line = '', ...others] = await problemsOf(`mcpServers:\n  a: {${entry}}\n`);
    assert.match(line, /^config\.yaml:2:\d+ mcpServers\.a\./);
    assert.ok(line.endsWith(`mcpServers.a.${problem}`), line);
    assert.deepEqual(others, []);
  });
}

const UNUSED: readonly (readonly [entry: string, ...warnings: string[]])[] = [
  ['command: x, headers: {A: b}', 'headers: has no effect: this entry starts a program, which gets "env"'],
  [`type: stdio, command: x, ${WEB}`, 'url: has no effect: this entry starts a program'],
  [
    `${WEB}, args: [x], env: {A: b}, cwd: .`,
    'args: has no effect: this entry connects to a URL and starts no program',
    'env: has no effect: this entry connects to a URL and starts no program; a URL gets "headers"',
    'cwd: has no effect: this entry connects to a URL and starts no program',
  ],
  [`type: http, command: x, ${WEB}`, 'command: has no effect: this entry connects to a URL and starts no program'],
  [
    `${WEB}, headers: {accept: text/html, Mcp-Session-Id: "1", X-Key: a}`,
    'headers: "Mcp-Session-Id" has no effect: the protocol decides it',
  ],
  // Clients write empty members that an entry does not use.
  ['command: x, headers: {}, url: null'],
  [`${WEB}, args: [], env: {}, command: null`],
  ['command: x, processLimits: {memory: 1GiB}'],
];

for (const [entry, ...expected] of UNUSED) {
  // N-12
  test(`a key without effect is accepted with a warning: ${shortened(entry, 30)}`, async () => {
    const { config, warnings } = await loadText(`mcpServers:\n  a: {${entry}}\n`);
    assert.equal(config.upstreams[0]?.problem, undefined);
    assert.deepEqual(
      warnings.map((line) => line.slice(line.indexOf('mcpServers.a.') + 'mcpServers.a.'.length)),
      expected,
    );
  });
}

const IGNORED = [
  "command: x, description: 'price in ${currency}'",
  "command: x, settings: {theme: '${THEME}'}, dev: {watch: '${OUT}/**'}, name: '${'",
  'command: x, tools: {search: {note: "${NOTE}"}}',
  `${WEB}, requestOptions: {proxy: '\${PROXY}', headers: {A: b}}`,
  `${WEB}, env: {A: '\${SECRET}'}`,
];

for (const entry of IGNORED) {
  // N-09
  test(`a text without effect may name a variable that is unset: ${shortened(entry, 30)}`, async () => {
    const { config } = await loadText(`mcpServers:\n  a: {${entry}}\n`);
    assert.equal(config.upstreams[0]?.problem, undefined);
  });
}

test('a URL is checked although a text without effect lacks a variable', async () => {
  const problems = await problemsOf("mcpServers:\n  a: {url: 'ftp://x', env: {A: '${SECRET}'}}\n");
  assert.match(problems.join('\n'), /mcpServers\.a\.url: expected an http:\/\/ or https:\/\/ URL/);
});

test('a URL with a port that does not exist is refused with the range', async () => {
  for (const port of ['0', '65536', '700000']) {
    const problems = await problemsOf(`mcpServers:\n  a: {url: 'http://x:${port}/mcp'}\n`);
    assert.match(problems.join('\n'), /mcpServers\.a\.url: expected a port from 1 to 65535/);
  }
  assert.deepEqual(await problemsOf("mcpServers:\n  a: {url: 'http://x:65535/a:70000'}\n"), []);
});

test('two dollar signs in a text that a client shows are no escape', async () => {
  const { warnings } = await loadText('{"mcpServers": {"a": {"command": "x", "description": "$$"}}}', {
    name: 'm.json',
  });
  assert.deepEqual(warnings, []);
});

test('a bound of memory has a warning where the system is not Linux', async (t) => {
  const platform = { value: process.platform, configurable: true };
  t.after(() => Object.defineProperty(process, 'platform', platform));
  Object.defineProperty(process, 'platform', { ...platform, value: 'darwin' });
  const { warnings } = await loadText('mcpServers:\n  a: {command: x, processLimits: {memory: 1GiB}}\n');
  assert.match(
    warnings.join('\n'),
    /mcpServers\.a\.processLimits: "memory" has no effect on this system: it needs Linux/,
  );
});
