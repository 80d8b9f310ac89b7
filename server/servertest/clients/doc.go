// Package clients runs official clients against the real server, and against "ktms-server dev": openai-go, go-openai,
// grpc-go and grpcurl here, those for Node in node/. Only the vendor's HTTP endpoint is scripted.
//
// It is a module of its own, so that their dependencies stay out of the product's. It needs Node.js with npm, and says
// so where they are missing: a client that was not tried is no success.
package clients
