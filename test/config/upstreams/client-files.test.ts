import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { loadText, problemsOf } from '../../support/config-file.ts';
import type { UpstreamConfig } from '../../../src/config/values/upstream-config.ts';
import { loadConfig } from '../../../src/config/load.ts';

const FOLDER = fileURLToPath(new URL('../../fixtures/config/', import.meta.url));
const ENV = { HOME: '/home/me', GITHUB_PAT: 'ghp_1', USER_NAME: 'me', INPUT_API_KEY: 'asked' };

const LOCAL = { kind: 'stdio', env: {}, cwd: undefined };
const REMOTE = { kind: 'http', url: 'https://example.com/mcp', headers: {} };

/** The remote server of both files of Codex. */
const FIGMA = {
  target: {
    kind: 'http',
    url: 'https://mcp.figma.com/mcp',
    headers: { 'X-Region': 'us-east-1', 'X-User': 'me', Authorization: 'Bearer ghp_1' },
  },
  timeouts: {
    startMs: 20_000,
    connectMs: 5_000,
    firstByteMs: 30_000,
    callMs: 45_500,
    toolMs: 45_500,
    maxMs: 3_600_000,
  },
  includeTools: ['open'],
  excludeTools: ['screenshot'],
};

/** The upstreams of each client's file: every member that differs from the defaults. */
const clients: readonly {
  client: string;
  file: string;
  upstreams: Readonly<Record<string, Readonly<Partial<Record<keyof UpstreamConfig, unknown>>>>>;
  warnings?: readonly string[];
}[] = [
  {
    client: 'Claude Code',
    file: 'claude-code.json',
    upstreams: {
      github: {
        title: 'GitHub',
        target: {
          kind: 'http',
          url: 'https://api.githubcopilot.com/mcp/',
          headers: { Authorization: 'Bearer ghp_1' },
        },
      },
      files: {
        target: {
          ...LOCAL,
          command: 'npx',
          args: ['-y', '@modelcontextprotocol/server-filesystem@2026.8.31', '/data'],
          env: { DEBUG: '1' },
        },
      },
    },
    warnings: ['claude-code.json:7:7 mcpServers.GitHub.oauth: unknown key; ignored'],
  },
  {
    client: 'Claude Desktop',
    file: 'claude-desktop.json',
    upstreams: {
      memory: {
        target: { ...LOCAL, command: 'npx', args: ['-y', '@modelcontextprotocol/server-memory@2026.8.31'] },
      },
    },
  },
  {
    client: 'Cursor',
    file: 'cursor.json',
    upstreams: {
      remote: { target: { ...REMOTE, headers: { 'X-Key': 'ghp_1' } } },
      local: {
        target: {
          ...LOCAL,
          command: 'python',
          args: [join(FOLDER, 'server.py')],
          env: { A: 'one', B: 'two' },
        },
      },
    },
  },
  {
    client: 'VS Code',
    file: 'vscode.json',
    upstreams: {
      search: { target: { ...REMOTE, headers: { Authorization: 'Bearer asked' } } },
      old: { target: { ...REMOTE, kind: 'sse', url: 'https://example.com/sse' } },
      tool: { target: { ...LOCAL, command: 'node', args: [join(FOLDER, 'tool.js')] } },
      socket: {
        target: { ...REMOTE, url: 'unix:///tmp/server.sock' },
        problem: 'unix sockets and pipes are not supported (vscode.json:14:40, servers.socket.url)',
      },
    },
  },
  {
    client: 'Copilot CLI',
    file: 'copilot.json',
    upstreams: {
      remote: { target: REMOTE, includeTools: ['search', 'fetch'] },
      local: { target: { ...LOCAL, command: 'node', args: ['server.js'] }, includeTools: ['*'] },
    },
  },
  {
    client: 'Windsurf',
    file: 'windsurf.json',
    upstreams: {
      remote: { target: { ...REMOTE, headers: { API_KEY: 'Bearer ghp_1' } }, excludeTools: ['delete'] },
    },
  },
  {
    client: 'Gemini CLI',
    file: 'gemini-cli/settings.json',
    upstreams: {
      streaming: {
        target: { ...REMOTE, headers: { Authorization: 'Bearer ghp_1' } },
        timeouts: {
          startMs: 30_000,
          connectMs: 5_000,
          firstByteMs: 30_000,
          callMs: 600,
          toolMs: 600,
          maxMs: 3_600_000,
        },
        includeTools: ['search'],
        excludeTools: ['delete'],
      },
      older: { target: { ...REMOTE, url: 'https://example.com/sse' } },
      local: {
        target: {
          ...LOCAL,
          command: 'python',
          args: ['-m', 'server'],
          cwd: join(FOLDER, 'gemini-cli/server'),
          env: { KEY: 'ghp_1', PRICE: '5$' },
        },
      },
    },
    warnings: [
      'settings.json:8:7 mcpServers.streaming.url: "httpUrl" comes before it; it falls back by itself where that is needed',
    ],
  },
  {
    client: 'Codex, as YAML',
    file: 'codex.yaml',
    upstreams: {
      figma: FIGMA,
      docs: {
        target: { ...LOCAL, command: 'npx', args: ['-y', '@upstash/context7-mcp'], env: { USER_NAME: 'me' } },
      },
    },
  },
  {
    client: 'Codex',
    file: 'codex/config.toml',
    upstreams: {
      figma: FIGMA,
      'my-docs': {
        title: 'my docs',
        target: {
          ...LOCAL,
          command: 'npx',
          args: ['-y', '@upstash/context7-mcp'],
          env: { USER_NAME: 'me', GITHUB_PAT: 'ghp_1', PORT: '08080' },
        },
      },
    },
  },
  {
    client: 'Continue',
    file: 'continue/config.yaml',
    upstreams: {
      sqlite: {
        title: 'SQLite',
        target: {
          ...LOCAL,
          command: 'uvx',
          args: ['mcp-server-sqlite', '--db-path', '/data/app.db'],
          cwd: '/data',
          env: { TOKEN: 'ghp_1' },
        },
        timeouts: {
          startMs: 20_000,
          connectMs: 5_000,
          firstByteMs: 30_000,
          callMs: 60_000,
          toolMs: 300_000,
          maxMs: 3_600_000,
        },
      },
      remote: { target: { ...REMOTE, headers: { Authorization: 'Bearer ghp_1' } } },
    },
  },
  {
    client: 'Claude Code of one user',
    file: 'claude-home/.claude.json',
    upstreams: {
      search: { target: REMOTE },
      files: { target: { ...LOCAL, command: 'npx', args: ['files'] } },
    },
    warnings: [
      '.claude.json:8:3 projects: servers of single projects are left out; add --project <folder> for those of /home/me/shop (2)',
    ],
  },
  {
    client: 'Zed',
    file: 'zed.json',
    upstreams: {
      custom: { target: { ...LOCAL, command: 'npx', args: ['server'] } },
      nested: { target: { ...LOCAL, command: '/usr/bin/server', args: ['--stdio'], env: { A: '1' } } },
      remote: { target: { ...REMOTE, headers: { Authorization: 'Bearer token' } } },
      unset: { target: { ...LOCAL, command: 'npx', args: ['server'] } },
      within: { target: { ...LOCAL, command: 'server', args: [] } },
    },
    warnings: ['zed.json:10:5 context_servers.extended: its program comes from an extension of the editor; left out'],
  },
  {
    client: 'LM Studio',
    file: 'lm-studio.json',
    upstreams: {
      'hf-mcp-server': {
        target: { kind: 'http', url: 'https://huggingface.co/mcp', headers: { Authorization: 'Bearer x' } },
      },
    },
  },
  {
    client: 'OpenCode',
    file: 'opencode.json',
    upstreams: {
      local: {
        target: { ...LOCAL, command: 'npx', args: ['-y', 'my-server'], env: { KEY: 'ghp_1' } },
        timeouts: {
          startMs: 8_000,
          connectMs: 5_000,
          firstByteMs: 30_000,
          callMs: 60_000,
          toolMs: 300_000,
          maxMs: 3_600_000,
        },
      },
      remote: { target: { ...REMOTE, headers: { Authorization: 'Bearer ghp_1' } } },
    },
  },
  {
    client: 'Goose',
    file: 'goose.yaml',
    upstreams: {
      github: {
        target: {
          ...LOCAL,
          command: 'npx',
          args: ['-y', '@modelcontextprotocol/server-github'],
          env: { GITHUB_PAT: 'ghp_1', PORT: '08080', VERBOSE: 'true' },
        },
        timeouts: {
          startMs: 30_000,
          connectMs: 5_000,
          firstByteMs: 30_000,
          callMs: 3_600_000,
          toolMs: 3_600_000,
          maxMs: 3_600_000,
        },
      },
      remote: { target: REMOTE },
    },
    warnings: ['goose.yaml:3:3 extensions.developer: a client carries out type "builtin" itself; left out'],
  },
  {
    client: 'Cline',
    file: 'cline.json',
    upstreams: {
      remote: {
        target: REMOTE,
        timeouts: {
          startMs: 30_000,
          connectMs: 5_000,
          firstByteMs: 30_000,
          callMs: 90_000,
          toolMs: 90_000,
          maxMs: 3_600_000,
        },
      },
    },
    warnings: ['cline.json:3:99 mcpServers.remote.timeout: taken for seconds; write "90s" to be sure'],
  },
  { client: 'Roo Code', file: 'roo.json', upstreams: { remote: { target: REMOTE, excludeTools: ['x'] } } },
  { client: 'Antigravity', file: 'antigravity.json', upstreams: { remote: { target: REMOTE } } },
];

for (const { client, file, upstreams, warnings = [] } of clients) {
  // N-09 N-68
  test(`the file of ${client} is read as it is, and not written`, async () => {
    const path = join(FOLDER, file);
    const before = await readFile(path);
    const loaded = await loadConfig(path, { env: ENV });

    const expected = Object.entries(upstreams).map(([id, says]) => {
      const isStdio = JSON.stringify(says).includes('"kind":"stdio"');
      return {
        id,
        title: id,
        prefix: `${id}__`,
        rawUris: false,
        isolation: 'session',
        samplingBudget: 2_000_000,
        clientFeatures: isStdio ? ['elicitation', 'roots', 'sampling'] : ['elicitation', 'roots'],
        era: 'auto',
        start: 'lazy',
        required: false,
        timeouts: {
          startMs: 30_000,
          connectMs: 5_000,
          firstByteMs: 30_000,
          callMs: 60_000,
          toolMs: 300_000,
          maxMs: 3_600_000,
        },
        concurrency: isStdio ? 32 : 1_024,
        queue: isStdio ? 64 : 2_048,
        queueMs: 5_000,
        idleMs: isStdio ? 600_000 : 3_600_000,
        maxConnections: isStdio ? 64 : 10_000,
        includeTools: undefined,
        excludeTools: [],
        problem: undefined,
        ...says,
      };
    });
    assert.deepEqual(loaded.config.upstreams, expected);
    assert.deepEqual(
      loaded.warnings.map((warning) => warning.slice(warning.lastIndexOf('/', warning.indexOf(':')) + 1)),
      warnings,
    );
    assert.deepEqual(await readFile(path), before);
  });
}

test('every client fixture is in the table', async () => {
  const files = (await readdir(FOLDER, { recursive: true })).filter((name) => /\.(?:json|yaml|toml)$/.test(name));
  const known = new Set(['wrong.yaml', 'wrong.txt', ...clients.map(({ file }) => file)]);
  assert.deepEqual(
    files.filter((name) => !known.has(name)),
    [],
  );
});

test('${workspaceFolder} of a file in .vscode is the folder above it', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-config-'));
  try {
    await mkdir(join(dir, '.vscode'));
    const file = join(dir, '.vscode', 'mcp.json');
    await writeFile(file, '{"servers": {"a": {"command": "${workspaceFolder}/run"}}}');
    const { target } = (await loadConfig(file, { env: {} })).config.upstreams[0] ?? {};
    assert.deepEqual(target, { kind: 'stdio', command: join(dir, 'run'), args: [], env: {}, cwd: undefined });
  } finally {
    await rm(dir, { recursive: true });
  }
});

const CLAUDE = join(FOLDER, 'claude-home/.claude.json');

// N-09
test('--project adds the servers of a project before those of the user', async () => {
  for (const project of ['/home/me/shop', '/home/me/shop/', '/home/me/notes/../shop']) {
    const { config, warnings } = await loadConfig(CLAUDE, { env: {}, project });
    assert.deepEqual(warnings, []);
    assert.deepEqual(
      config.upstreams.map(({ id, target }) => [id, target.kind === 'stdio' ? target.args : target.url]),
      [
        ['database', ['database']],
        ['files', ['shop-files']],
        ['search', 'https://example.com/mcp'],
      ],
    );
  }
});

// N-09
test('an unknown --project is refused with the names of existing projects', async () => {
  await assert.rejects(
    loadConfig(CLAUDE, { env: {}, project: '/home/me/other' }),
    /projects: no project "\/home\/me\/other" with servers of its own; there are \/home\/me\/shop \(2\)$/,
  );
  assert.deepEqual(await problemsOf('{"mcpServers": {}}', { name: 'mcp.json', project: '/shop' }), [
    'mcp.json:1:1 projects: no project "/shop" with servers of its own; no project of this file has any; --project is for ~/.claude.json',
  ]);
});

// N-09
test('~/.claude.json with servers only in projects is refused with their names', async () => {
  const text = '{"projects": {"/a": {"mcpServers": {"x": {"command": "node"}}}, "/b": {}}}';
  assert.deepEqual(await problemsOf(text, { name: '.claude.json' }), [
    '.claude.json:1:2 projects: servers of single projects are left out; add --project <folder> for those of /a (1)',
  ]);
  const { config } = await loadText(text, { name: '.claude.json', project: '/a' });
  assert.deepEqual(
    config.upstreams.map(({ id }) => id),
    ['x'],
  );
});

// N-09
test('a large ~/.claude.json is read, and state besides servers is skipped', async () => {
  const history = Array.from({ length: 30_000 }, (_, i) => ({ display: `prompt ${i} ${'x'.repeat(40)}` }));
  const text = JSON.stringify(
    { history, mcpServers: { a: { command: 'node' }, b: { command: 'node', args: 7 } }, projects: {} },
    undefined,
    1,
  );
  assert.ok(text.length > 2_000_000);
  const { config, problems } = await loadText(text, { name: '.claude.json' });
  assert.deepEqual(
    config.upstreams.map(({ id, problem }) => [id, problem === undefined]),
    [
      ['a', true],
      ['b', false],
    ],
  );
  assert.equal(problems[0]?.line, text.split('\n').findIndex((line) => line.includes('"args": 7')) + 1);
});

test('a number in the environment of ~/.claude.json keeps all its digits', async () => {
  const env = '{"ID": 1234567890123456789, "V": 1.10, "ON": true}';
  const text = `{"mcpServers": {"a": {"command": "node", "env": ${env}}}}`;
  for (const name of ['.claude.json', 'mcp.json']) {
    const [upstream] = (await loadText(text, { name })).config.upstreams;
    const expected = { ...LOCAL, command: 'node', args: [], env: { ID: '1234567890123456789', V: '1.10', ON: 'true' } };
    assert.deepEqual(upstream?.target, expected, name);
  }
});

test('the settings of a large ~/.claude.json are listed sooner than it is read', async () => {
  const history = Array.from({ length: 100_000 }, (_, i) => ({ display: `prompt ${i} ${'x'.repeat(40)}` }));
  const servers = Array.from({ length: 200 }, (_, i) => [`s${i}`, { command: 'node' }]);
  const text = JSON.stringify({ history, mcpServers: Object.fromEntries(servers) }, undefined, 1);
  const attempt = async () => {
    const startMs = performance.now();
    const { settings } = await loadText(text, { name: '.claude.json' });
    const readMs = performance.now();
    const all = settings();
    return { all, isSooner: performance.now() - readMs < readMs - startMs };
  };
  // Other programs on the machine may delay one attempt.
  const attempts = [await attempt(), await attempt(), await attempt()];
  assert.ok(attempts.some(({ isSooner }) => isSooner));
  const last = attempts[0]?.all.findLast(({ origin }) => origin === 'file');
  const line = text.split('\n').findLastIndex((one) => one.includes('"command"')) + 1;
  assert.match(last?.place ?? '', new RegExp(`:${line}:\\d+$`));
});

// N-09
test('a wrong entry fails alone, with its position and all its problems', async () => {
  const text = `{"mcpServers": {
    "socket": {"type": "ws", "url": "wss://example.com/mcp", "timeout": "soon"},
    "good": {"command": "node"},
    "neither": {"required": true},
    "off": {"type": "ws", "disabled": true}
  }}`;
  const { config, problems } = await loadText(text, { name: 'mcp.json' });
  assert.deepEqual(
    config.upstreams.map(({ id, required, target, problem }) => [id, required, target.kind, problem]),
    [
      [
        'socket',
        false,
        'http',
        'expected one of "stdio", "http", "sse", got "ws"; MCP over WebSocket is not supported (mcp.json:2:24, mcpServers.socket.type); ' +
          'expected a duration such as "30s", got "soon" (mcp.json:2:73, mcpServers.socket.timeout)',
      ],
      ['good', false, 'stdio', undefined],
      ['neither', true, 'stdio', 'expected "command" (stdio) or "url" (http) (mcp.json:4:5, mcpServers.neither)'],
    ],
  );
  assert.deepEqual(
    problems.map(({ line, key }) => [line, key]),
    [
      [2, 'mcpServers.socket.type'],
      [2, 'mcpServers.socket.timeout'],
      [4, 'mcpServers.neither'],
    ],
  );
});

// N-09
test('a problem in TOML names the line of its key', async () => {
  const text =
    '[mcp_servers.a]\ncommand = "node"\n\n[mcp_servers."b c"]\nurl = "https://x"\n  timeouts = { call = 30 }\n';
  const { problems } = await loadText(text, { name: 'config.toml' });
  assert.deepEqual(
    problems.map(({ line, column, key }) => [line, column, key]),
    [[6, 3, 'mcp_servers["b c"].timeouts.call']],
  );
  assert.deepEqual(await problemsOf('[mcp_servers.a]\nkey = "s3cret\n', { name: 'config.toml' }), [
    'config.toml:2:14: a text in quotes is not closed in this line',
  ]);
});

const BROKEN = [
  {
    text: '{"mcpServers": {"a": {"command": "node"}',
    says: 'config.json:1:41: the file ends here: expected "}"; a brace is not closed',
  },
  { text: '{"mcpServers": {"a": {"command": ', says: 'config.json:1:34: the file ends here: expected a value' },
  { text: '{"mcpServers": {"a": {"args": ["x",\n', says: 'config.json:2:1: the file ends here: expected a value' },
  {
    text: '{"mcpServers": {"a": {},\n  "b',
    says: 'config.json:2:3: the file ends in this text: a text is not closed; expected a double quote',
  },
  {
    text: '{"mcpServers": {"a": {"command": "node}},\n"gateway": {}}',
    says: 'config.json:1:34: a text is not closed; expected a double quote',
  },
  {
    text: '{"mcpServers": {\n  "a": {"command": "node"}\n  "b": {"command": "node"}\n}}',
    says: 'config.json:3:3: expected "," between two members',
  },
  {
    text: '{"mcpServers": {"a": {"command" "node"}}}',
    says: 'config.json:1:33: expected ":" after the key',
  },
  { text: '{"mcpServers": {"a": {"args": ["x" "y"]}}}', says: 'config.json:1:36: expected "," between two members' },
];

for (const { text, says } of BROKEN) {
  // N-12
  test(`broken JSON: ${says}`, async () => {
    assert.deepEqual(await problemsOf(text, { name: 'config.json' }), [says]);
  });
}
