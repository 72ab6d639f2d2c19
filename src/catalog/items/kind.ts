export type ItemKind = 'tool' | 'prompt' | 'resource' | 'template';

/** The member that an item of each kind is known by. */
export const KEY: Readonly<Record<ItemKind, string>> = {
  tool: 'name',
  prompt: 'name',
  resource: 'uri',
  template: 'uriTemplate',
};
