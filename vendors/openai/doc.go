// Package openai speaks the OpenAI chat dialect: to OpenAI itself, DeepSeek, Groq, Mistral, Azure, Ollama and every
// other server that is compatible. What differs between them is one table, in dialect.go.
//
// encode.go and its neighbours turn a request into the wire's, decode.go an answer into ours, stream.go the same piece
// by piece; client.go makes the calls. The wire itself is package openaiapi.
package openai
