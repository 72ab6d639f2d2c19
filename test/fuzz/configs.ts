import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ConfigError } from '../../src/config/document/problem.ts';
import { loadConfig } from '../../src/config/load.ts';
import { Dice } from './dice.ts';
import type { Finding } from './engine.ts';
import { shownBytes } from './input.ts';

/** Config files that are wrong. They are loaded in the process of the fuzzer. */
export const CONFIGS = { name: 'configs', inputs: 300 };

const MAX_MS = 500; // subject
const TRIES = 3;

const GOOD = `
mcpServers:
  one: { command: node, args: [server.js], env: { TOKEN: "\${TOKEN}" } }
  two: { url: "https://example.com/mcp", headers: { authorization: "Bearer x" } }
gateway:
  listen: 127.0.0.1:0
  limits: { processes: 8, sessions: 100 }
  access:
    roles:
      reader: { upstreams: [one], tools: ["get_*"], when: 'args.n > 1', weight: 2 }
    grants:
      - { roles: [reader], anyone: true }
`;
const PARTS = [
  '&a [*a]',
  '&a { b: *a }',
  '[a, &x [1, 2], *x, *x, *x]',
  '!!js/function "x"',
  '!!binary "AAAA"',
  '<<: { a: 1 }',
  '? [complex] : key',
  '"${HOME}${NOPE:-x}"',
  '"${"',
  '${env:PATH}',
  '1e999',
  '.nan',
  '0x7fffffffffffffff',
  '-1',
  '"\\u0000"',
  '__proto__: { a: 1 }',
  'constructor: x',
  'null',
  '~',
  '[[[[[[[[]]]]]]]]',
  '|-\n  text',
  '---\n',
  '...\n',
  '# comment',
  '\t',
  '99999999999999999999999s',
  '"*"',
];

function textOf(dice: Dice): string {
  const lines = GOOD.split('\n');
  for (let i = 1 + dice.below(3); i > 0; i--) {
    const at = dice.below(lines.length);
    const line = lines[at] ?? '';
    switch (dice.below(7)) {
      case 0:
        lines.splice(at, 1);
        break;
      case 1:
        lines.splice(at, 0, line);
        break;
      case 2:
        lines[at] = line.replace(/:.*/, `: ${dice.one(PARTS)}`);
        break;
      case 3:
        lines.splice(at, 0, `${' '.repeat(dice.below(6))}${dice.one(PARTS)}`);
        break;
      case 4:
        lines[at] = line.slice(0, dice.below(line.length + 1));
        break;
      case 5:
        lines[at] = line.replace(/\w+/, (word) => word.toUpperCase());
        break;
      default:
        lines.push(aliases(dice.below(9)));
    }
  }
  return lines.join('\n');
}

/** Returns anchors that each name the one before ten times. */
function aliases(depth: number): string {
  const rows = Array.from(
    { length: depth },
    (_, i) => `x${i}: &x${i} [${i === 0 ? 'a' : Array.from({ length: 10 }, () => `*x${i - 1}`).join(', ')}]`,
  );
  return rows.join('\n');
}

/** Loads config files. A file is right, or has problems with their places; loading it takes no long time. */
export async function checkConfigs(dir: string, seed: number, inputs: number): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  const file = join(dir, 'fuzzed.yaml');
  for (let index = 0; index < inputs; index++) {
    const text = textOf(new Dice(seed * 1_000_003 + index));
    const add = (oracle: Finding['oracle'], why: string) =>
      findings.push({ oracle, text: why, category: CONFIGS.name, input: shownBytes(Buffer.from(text)) });
    await writeFile(file, text);
    let leastMs = Infinity;
    for (let tries = 0; tries < TRIES && leastMs > MAX_MS; tries++) {
      const startedMs = performance.now();
      const broken = await problemOf(file);
      leastMs = Math.min(leastMs, performance.now() - startedMs);
      if (broken !== undefined) add('alive', broken);
    }
    if (leastMs > MAX_MS) add('delay', `it took ${leastMs.toFixed(0)} ms`);
  }
  return findings;
}

/** Returns the reason if a file is refused in another way than by problems. */
async function problemOf(file: string): Promise<string | undefined> {
  try {
    await loadConfig(file, { env: { TOKEN: 'a-token', HOME: '/root' } });
    return undefined;
  } catch (thrown) {
    if (thrown instanceof ConfigError && thrown.problems.length > 0) return undefined;
    return thrown instanceof Error ? `${thrown.name}: ${thrown.message}` : String(thrown);
  }
}
