// A client as a user of the Go SDK writes it. Usage: client URL TOOL
//
// In a session, it declares roots and elicitation, calls the tool without arguments, and prints the text of the result.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func call(ctx context.Context, url, tool string) (string, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "peer", Version: "1.0.0"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
		},
	})
	client.AddRoots(&mcp.Root{URI: "file:///peer", Name: "peer"})
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		return "", err
	}
	defer session.Close()
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool})
	if err != nil {
		return "", err
	}
	said := ""
	for _, content := range result.Content {
		if text, ok := content.(*mcp.TextContent); ok {
			said += text.Text
		}
	}
	if result.IsError {
		return "", fmt.Errorf("%s", said)
	}
	return said, nil
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	said, err := call(ctx, os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(said)
}
