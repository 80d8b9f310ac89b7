// Package openaiapi holds the messages of the OpenAI chat API as Go values that lose nothing.
//
// It is pure JSON: no HTTP, no defaults, no checks beyond shape. The HTTP door reads requests and writes answers with
// it, the dialect in vendors/openai does the reverse.
//
// What survives a decode and an encode:
//
//   - Members that a type does not know stand in its Extra, in order, each value byte for byte.
//   - So does a known member whose value its field cannot hold ("temperature": "warm", "stop": [], a number beyond
//     int64): whoever reads it in the end may judge it. Only where this program itself depends on the value is a wrong
//     type an error: model, messages, roles, contents, tool calls, stream, n and the two ceilings of the answer.
//   - Zero is a value: optional numbers and booleans are pointers.
//   - null means "not set" for every known member but content, which keeps its presence.
//
// Decoded values alias the bytes that they were decoded from; whoever keeps them must not change those bytes. Answers
// are decoded more leniently than requests, since compatible servers differ: a member of a wrong type never fails an
// answer, it ends in Extra.
package openaiapi
