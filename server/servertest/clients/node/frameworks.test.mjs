// LangChain and the AI SDK, which have their own ideas of the same API.
import assert from 'node:assert/strict';
import test from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool as langTool } from '@langchain/core/tools';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { embedMany, generateText, isStepCount, Output, streamText, tool } from 'ai';
import { z } from 'zod';
import { baseURL, hello, key, toolsSaid, total } from './world.mjs';

const parameters = { weather: z.object({ city: z.string() }), time: z.object({}) };
const results = { weather: 'sunny', time: 'noon' };

const lang = (model) => new ChatOpenAI({ model, apiKey: key, maxRetries: 0, configuration: { baseURL } });

test('LangChain: unary', async () => {
  const r = await lang('auto').invoke('hi');
  assert.equal(r.text, hello);
  assert.equal(r.usage_metadata.total_tokens, total);
});

test('LangChain: stream with usage', async () => {
  let all;
  for await (const chunk of await lang('auto').stream('hi')) all = all ? all.concat(chunk) : chunk;
  assert.equal(all.text, hello);
  assert.equal(all.usage_metadata.total_tokens, total);
});

test('LangChain: tools, whole, streamed and answered', async () => {
  const tools = Object.entries(parameters).map(([name, schema]) => langTool(() => results[name], { name, description: name, schema }));
  const bound = lang('auto').bindTools(tools);
  const calls = [
    ['call_1', 'weather', { city: 'Paris' }],
    ['call_2', 'time', {}],
  ];
  const flat = (message) => message.tool_calls.map((c) => [c.id, c.name, c.args]);
  const first = await bound.invoke('hi');
  assert.deepEqual(flat(first), calls);
  let all;
  for await (const chunk of await bound.stream('hi')) all = all ? all.concat(chunk) : chunk;
  assert.deepEqual(flat(all), calls);
  const answers = all.tool_calls.map((c) => new ToolMessage({ tool_call_id: c.id, content: results[c.name] }));
  assert.equal((await bound.invoke([new HumanMessage('hi'), all, ...answers])).text, toolsSaid);
});

test('LangChain: structured output', async () => {
  const schema = z.object({ city: z.string(), population: z.int().nullable() });
  const r = await lang('good').withStructuredOutput(schema, { name: 'city', method: 'jsonSchema' }).invoke('hi');
  assert.deepEqual({ ...r }, { city: 'Paris', population: 2100000 });
});

const provider = createOpenAICompatible({ name: 'ktms', baseURL, apiKey: key, includeUsage: true, supportsStructuredOutputs: true });
const ai = { model: provider.chatModel('auto'), prompt: 'hi', maxRetries: 0 };

test('AI SDK: unary', async () => {
  const r = await generateText(ai);
  assert.equal(r.text, hello);
  assert.equal(r.finishReason, 'stop');
  assert.equal(r.usage.totalTokens, total);
});

test('AI SDK: stream with usage', async () => {
  const r = streamText({ ...ai, onError: ({ error }) => assert.fail(error) });
  let text = '';
  for await (const piece of r.textStream) text += piece;
  assert.equal(text, hello);
  assert.equal((await r.usage).totalTokens, total);
});

test('AI SDK: tools in both turns, whole and streamed', async () => {
  const tools = Object.fromEntries(
    Object.entries(parameters).map(([name, inputSchema]) => [name, tool({ description: name, inputSchema, execute: () => results[name] })]),
  );
  const two = { ...ai, tools, stopWhen: isStepCount(2) };
  assert.equal((await generateText(two)).text, toolsSaid);
  const r = streamText({ ...two, onError: ({ error }) => assert.fail(error) });
  await r.consumeStream();
  assert.equal(await r.text, toolsSaid);
  assert.equal((await r.steps)[0].toolCalls.length, 2);
});

test('AI SDK: structured output', async () => {
  const schema = z.object({ city: z.string(), population: z.int().nullable() });
  const r = await generateText({ ...ai, output: Output.object({ schema, name: 'city' }) });
  assert.deepEqual(r.output, { city: 'Paris', population: 2100000 });
});

test('AI SDK: a broken stream and a refusal are errors', async () => {
  const errors = [];
  const broken = streamText({ ...ai, model: provider.chatModel('dies'), onError: ({ error }) => errors.push(error) });
  await broken.consumeStream({ onError: () => {} });
  assert.match(JSON.stringify(errors), /vendors_unavailable/);
  await assert.rejects(generateText({ ...ai, model: provider.chatModel('nope') }), (e) => e.statusCode === 404 && !e.isRetryable);
});

test('LangChain: embeddings', async () => {
  const embeddings = new OpenAIEmbeddings({ model: 'vectors', apiKey: key, maxRetries: 0, configuration: { baseURL } });
  assert.deepEqual(await embeddings.embedDocuments(['ab', 'abcd']), [[2, 0, 0.5], [4, 1, 0.5]]);
});

test('AI SDK: embeddings', async () => {
  const { embeddings } = await embedMany({ model: provider.embeddingModel('vectors'), values: ['ab', 'abcd'], maxRetries: 0 });
  assert.deepEqual(embeddings, [[2, 0, 0.5], [4, 1, 0.5]]);
});
