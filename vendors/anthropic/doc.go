// Package anthropic speaks the Messages API of Anthropic, and of servers that imitate it.
//
// fields.go says what becomes of each request field, generations.go what the models differ in. The encoder asks both
// before it writes; nothing else knows.
package anthropic
