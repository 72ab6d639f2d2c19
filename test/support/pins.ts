import type { LockConfig } from '../../src/config/values/config.ts';
import { RawObject } from '../../src/json/json.ts';
import { lockText } from '../../src/lock/lock-file.ts';
import { type OnChange, pinsOf } from '../../src/lock/pins.ts';
import { pinUpstream } from '../../src/lock/upstream-check.ts';

type Items = readonly object[];

/** Lists of a scripted server, as it sends them. */
export interface ScriptedLists {
  readonly tools?: Items;
  readonly prompts?: Items;
  readonly resources?: Items;
  readonly resourceTemplates?: Items;
}

/** Returns the setting of a lock in which these lists are pinned, by upstream id. */
export function lockOf(upstreams: Readonly<Record<string, ScriptedLists>>, onChange: OnChange): LockConfig {
  return { file: '/linkspan.lock', onChange, pins: pinsOf(lockTextOf(upstreams)) };
}

/** Returns the text of a lock file in which these lists are pinned, by upstream id. */
export function lockTextOf(upstreams: Readonly<Record<string, ScriptedLists>>): string {
  const items = (list: Items = []) => list.map((item) => RawObject.parse(JSON.stringify(item)));
  const entries = Object.entries(upstreams).map(([id, { tools, prompts, resources, resourceTemplates }]) => {
    const offer = {
      tools: items(tools),
      prompts: items(prompts),
      resources: items(resources),
      templates: items(resourceTemplates),
      instructions: undefined,
      serverInfo: RawObject.EMPTY,
    };
    return [id, pinUpstream([{ era: 'legacy', offer }])] as const;
  });
  return lockText(new Map(entries));
}
