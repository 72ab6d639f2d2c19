export type ItemKind = 'tool' | 'prompt' | 'resource' | 'template';

/** The member that identifies an item of each kind. */
export const KEY: Readonly<Record<ItemKind, string>> = {
  tool: 'name',
  prompt: 'name',
  resource: 'uri',
  template: 'uriTemplate',
};
