// Package bedrock speaks the Converse dialect of Amazon Bedrock through the vendor's SDK.
//
// The SDK spells requests, signs them and reads answers. Everything about the connection is package transport's: the SDK
// calls through an exchange, makes exactly one call and reads nothing from the environment. Three things are done beside
// the SDK, since it would lose something: the JSON of tools travels as the text it is (document.go), the arguments of
// calls are taken from the answer's bytes (decode.go), and the events of a stream are read where they are consumed
// (stream.go).
package bedrock
