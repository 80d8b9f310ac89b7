// A newcomer's first calls: the official client against "ktms-server dev" and its demonstration model.
import assert from 'node:assert/strict';
import test from 'node:test';
import OpenAI from 'openai';
import { baseURL, hi, key } from './world.mjs';

const client = new OpenAI({ baseURL, apiKey: key, maxRetries: 0 });
const model = process.env.KTMS_MODEL;
const tools = [{ type: 'function', function: { name: 'weather', parameters: { type: 'object', properties: {} } } }];

test('unary', async () => {
  const r = await client.chat.completions.create({ model, messages: hi });
  assert.match(r.choices[0].message.content, /You said: hi$/);
  assert.equal(r.model, 'demo-echo');
});

test('stream', async () => {
  const stream = client.chat.completions.stream({ model, messages: hi, stream_options: { include_usage: true } });
  assert.match(await stream.finalContent(), /You said: hi$/);
  assert.ok((await stream.totalUsage()).total_tokens > 0);
});

test('tools', async () => {
  const stream = client.chat.completions.stream({ model, messages: hi, tools });
  const message = await stream.finalMessage();
  assert.equal(message.tool_calls[0].function.name, 'weather');
  const answer = { role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'sunny' };
  const second = await client.chat.completions.create({ model, tools, messages: [...hi, message, answer] });
  assert.match(second.choices[0].message.content, /sunny$/);
});
