import type { AccessConfig } from '../../policy/access-config.ts';
import { comparedNames } from '../../policy/conditions/comparisons.ts';
import type { LockConfig } from '../values/config.ts';
import type { UpstreamConfig } from '../values/upstream-config.ts';
import type { Faults } from '../document/faults.ts';
import type { Path } from '../document/problem.ts';
import { noSuch } from '../document/suggest.ts';
import { onChangeOf } from './lock.ts';
import { rulesOf } from './rules.ts';

const KINDS = [
  { kind: 'tool', setting: 'tools' },
  { kind: 'prompt', setting: 'prompts' },
] as const;

/** An upstream whose definitions are pinned. */
interface Pinned {
  /** The keys of its definitions, by kind. */
  readonly names: Readonly<Record<'tool' | 'prompt', readonly string[]>>;
  /** True if nothing is served that is not in the lock. */
  readonly isComplete: boolean;
}

/**
 * Judges the names of tools and prompts in access rules and their conditions by the lock file. A name that no upstream of its rule has
 * there can never match where all of them serve only what is pinned: a problem. Where one of them serves more, or in a condition, it is a warning. Globs, and upstreams that are not in the lock, are not judged.
 */
export function judgePinnedNames(
  access: AccessConfig,
  lock: LockConfig,
  upstreams: readonly UpstreamConfig[],
  faults: Faults,
): void {
  const pinned = new Map(upstreams.map((upstream) => [upstream.id, pinnedOf(lock, upstream)]));
  for (const { rule, path } of access.roles.flatMap(rulesOf)) {
    const judges = (rule.upstreams ?? [...pinned.keys()]).map((id) => pinned.get(id));
    if (!judges.every((judge) => judge !== undefined)) continue;
    const judge = (at: Path, what: string, name: string, known: readonly string[], place = '') => {
      if (known.includes(name)) return;
      const message = `${noSuch(`${what} in ${lock.file}`, name, known)}; this rule never matches it${place}`;
      // A condition may still match in another way.
      const isProblem = place === '' && judges.every(({ isComplete }) => isComplete);
      faults[isProblem ? 'refuse' : 'warn']([...path, ...at], message);
    };
    const namesOf = (kind: 'tool' | 'prompt') => judges.flatMap(({ names }) => names[kind]);
    const names = { tool: namesOf('tool'), prompt: namesOf('prompt') };
    for (const { kind, setting } of KINDS)
      for (const [index, name] of (rule[setting] ?? []).entries())
        if (!/[*?]/.test(name)) judge([setting, index], kind, name, names[kind]);
    const all = [...names.tool, ...names.prompt];
    for (const { text, character } of rule.when === undefined ? [] : comparedNames(rule.when))
      judge(['when'], 'tool or prompt', text, all, ` (at character ${character})`);
  }
}

function pinnedOf(lock: LockConfig, upstream: UpstreamConfig): Pinned | undefined {
  const lists = lock.pins.lists.get(upstream.id) ?? [];
  const reaction = onChangeOf({ lock }, upstream);
  if (reaction === undefined || lists.length === 0) return undefined;
  const definitions = lists.flatMap((one) => [...one.definitions.values()]);
  const names = (kind: 'tool' | 'prompt') => definitions.filter((one) => one.kind === kind).map(({ key }) => key);
  return { names: { tool: names('tool'), prompt: names('prompt') }, isComplete: reaction !== 'warn' };
}
