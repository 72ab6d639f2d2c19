import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import type { UpstreamConfig } from '../../src/config/config.ts';
import { loadConfig } from '../../src/config/load.ts';

const FOLDER = fileURLToPath(new URL('../fixtures/config/', import.meta.url));
const ENV = { HOME: '/home/me', GITHUB_PAT: 'ghp_1', USER_NAME: 'me', INPUT_API_KEY: 'asked' };

const LOCAL = { kind: 'stdio', env: {}, cwd: undefined };
const REMOTE = { kind: 'http', url: 'https://example.com/mcp', headers: {} };

/** What each client's file comes to: of every upstream, what it says beyond the defaults. */
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
        timeouts: { startMs: 30_000, connectMs: 5_000, firstByteMs: 30_000, callMs: 600, maxMs: 600_000 },
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
      figma: {
        target: {
          kind: 'http',
          url: 'https://mcp.figma.com/mcp',
          headers: { 'X-Region': 'us-east-1', 'X-User': 'me', Authorization: 'Bearer ghp_1' },
        },
        timeouts: { startMs: 20_000, connectMs: 5_000, firstByteMs: 30_000, callMs: 45_500, maxMs: 600_000 },
        includeTools: ['open'],
        excludeTools: ['screenshot'],
      },
      docs: {
        target: { ...LOCAL, command: 'npx', args: ['-y', '@upstash/context7-mcp'], env: { USER_NAME: 'me' } },
      },
    },
  },
  {
    client: 'Zed',
    file: 'zed.json',
    upstreams: {
      custom: { target: { ...LOCAL, command: 'npx', args: ['server'] } },
      nested: { target: { ...LOCAL, command: '/usr/bin/server', args: ['--stdio'], env: { A: '1' } } },
      remote: { target: { ...REMOTE, headers: { Authorization: 'Bearer token' } } },
    },
    warnings: ['zed.json:8:5 context_servers.extended: its program comes from an extension of the editor; left out'],
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
        timeouts: { startMs: 8_000, connectMs: 5_000, firstByteMs: 30_000, callMs: 60_000, maxMs: 600_000 },
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
        timeouts: { startMs: 30_000, connectMs: 5_000, firstByteMs: 30_000, callMs: 3_600_000, maxMs: 3_600_000 },
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
        timeouts: { startMs: 30_000, connectMs: 5_000, firstByteMs: 30_000, callMs: 90_000, maxMs: 600_000 },
      },
    },
    warnings: ['cline.json:3:99 mcpServers.remote.timeout: taken for seconds; write "90s" to be sure'],
  },
  { client: 'Roo Code', file: 'roo.json', upstreams: { remote: { target: REMOTE, excludeTools: ['x'] } } },
  { client: 'Antigravity', file: 'antigravity.json', upstreams: { remote: { target: REMOTE } } },
];

for (const { client, file, upstreams, warnings = [] } of clients) {
  test(`the file of ${client} is read as it is, and not written`, async () => {
    const path = join(FOLDER, file);
    const before = await readFile(path);
    const loaded = loadConfig(path, { env: ENV });

    const expected = Object.entries(upstreams).map(([id, says]) => {
      const isStdio = JSON.stringify(says).includes('"kind":"stdio"');
      return {
        id,
        title: id,
        prefix: `${id}__`,
        rawUris: false,
        isolation: 'session',
        era: 'auto',
        start: 'lazy',
        required: false,
        timeouts: { startMs: 30_000, connectMs: 5_000, firstByteMs: 30_000, callMs: 60_000, maxMs: 600_000 },
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

test('every fixture of a client is in the table', async () => {
  const files = (await readdir(FOLDER, { recursive: true })).filter((name) => /\.(?:json|yaml)$/.test(name));
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
    const { target } = loadConfig(file, { env: {} }).config.upstreams[0] ?? {};
    assert.deepEqual(target, { kind: 'stdio', command: join(dir, 'run'), args: [], env: {}, cwd: undefined });
  } finally {
    await rm(dir, { recursive: true });
  }
});
