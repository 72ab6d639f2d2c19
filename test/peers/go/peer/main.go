// A server as a user of the Go SDK writes it. Usage: peer ID stdio|http|http-sessions|sse
//
// Over HTTP the SDK serves either without sessions, in both eras, or with sessions, which exist up to 2025-11-25.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var cancelled, touched atomic.Int64

type nothing struct{}

type echoed struct {
	Text string `json:"text"`
}

type summands struct {
	A int `json:"a"`
	B int `json:"b"`
}

type sum struct {
	Sum int `json:"sum"`
}

func text(said string) (*mcp.CallToolResult, any, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: said}}}, nil, nil
}

func starting(all []string, start string) []string {
	found := []string{}
	for _, one := range all {
		if strings.HasPrefix(one, start) {
			found = append(found, one)
		}
	}
	return found
}

func complete(_ context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	values := []string{"ada", "grace"}
	if req.Params.Ref.Type == "ref/prompt" {
		values = []string{"french", "german"}
	}
	found := starting(values, req.Params.Argument.Value)
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: found, Total: len(found)}}, nil
}

func peer(id string) *mcp.Server {
	watched := "peer://" + id + "/watched"
	server := mcp.NewServer(&mcp.Implementation{Name: "peer-" + id, Version: "1.0.0"}, &mcp.ServerOptions{
		Instructions:       "A peer of the tests.",
		CompletionHandler:  complete,
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	var counts sync.Map

	mcp.AddTool(server, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, args echoed) (*mcp.CallToolResult, any, error) {
		return text(args.Text)
	})
	mcp.AddTool(server, &mcp.Tool{Name: "add"}, func(_ context.Context, _ *mcp.CallToolRequest, args summands) (*mcp.CallToolResult, sum, error) {
		return nil, sum{args.A + args.B}, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "fail"}, func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, any, error) {
		return nil, nil, fmt.Errorf("this tool fails on purpose")
	})
	mcp.AddTool(server, &mcp.Tool{Name: "progress"}, func(ctx context.Context, req *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
		if token := req.Params.GetProgressToken(); token != nil {
			for step := 1; step <= 3; step++ {
				req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
					ProgressToken: token, Progress: float64(step), Total: 3, Message: fmt.Sprintf("step %d", step),
				})
			}
		}
		return text("progressed")
	})
	mcp.AddTool(server, &mcp.Tool{Name: "log"}, func(ctx context.Context, req *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
		req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: "a line of the log"})
		return text("logged")
	})
	mcp.AddTool(server, &mcp.Tool{Name: "ask_name"}, func(ctx context.Context, req *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
		answer, err := req.Session.Elicit(ctx, &mcp.ElicitParams{
			Message: "What is your name?",
			RequestedSchema: map[string]any{
				"type":       "object",
				"properties": map[string]any{"name": map[string]any{"type": "string"}},
				"required":   []string{"name"},
			},
		})
		if err != nil {
			return nil, nil, err
		}
		if answer.Action != "accept" {
			return text(answer.Action)
		}
		return text(fmt.Sprintf("Hello, %v", answer.Content["name"]))
	})
	mcp.AddTool(server, &mcp.Tool{Name: "ask_model"}, func(ctx context.Context, req *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
		answer, err := req.Session.CreateMessage(ctx, &mcp.CreateMessageParams{
			MaxTokens: 10,
			Messages:  []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: "the capital of France"}}},
		})
		if err != nil {
			return nil, nil, err
		}
		said, _ := answer.Content.(*mcp.TextContent)
		return text("The model says " + said.Text)
	})
	mcp.AddTool(server, &mcp.Tool{Name: "ask_roots"}, func(ctx context.Context, req *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
		answer, err := req.Session.ListRoots(ctx, nil)
		if err != nil {
			return nil, nil, err
		}
		uris := []string{}
		for _, root := range answer.Roots {
			uris = append(uris, root.URI)
		}
		return text(strings.Join(uris, " "))
	})
	mcp.AddTool(server, &mcp.Tool{Name: "slow"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
		select {
		case <-ctx.Done():
			cancelled.Add(1)
			return nil, nil, ctx.Err()
		case <-time.After(30 * time.Second):
			return text("slept")
		}
	})
	mcp.AddTool(server, &mcp.Tool{Name: "count_cancelled"}, func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, any, error) {
		return text(fmt.Sprint(cancelled.Load()))
	})
	mcp.AddTool(server, &mcp.Tool{Name: "count"}, func(_ context.Context, req *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
		counter, _ := counts.LoadOrStore(req.Session.ID(), &atomic.Int64{})
		return text(fmt.Sprint(counter.(*atomic.Int64).Add(1)))
	})
	mcp.AddTool(server, &mcp.Tool{Name: "touch"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ nothing) (*mcp.CallToolResult, any, error) {
		touched.Add(1)
		server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: watched})
		return text("touched")
	})
	mcp.AddTool(server, &mcp.Tool{Name: "change"}, func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, any, error) {
		mcp.AddTool(server, &mcp.Tool{Name: "added"}, func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, any, error) {
			return text("added")
		})
		return text("changed")
	})

	read := func(said func(uri string) string) mcp.ResourceHandler {
		return func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			uri := req.Params.URI
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, Text: said(uri)}}}, nil
		}
	}
	server.AddResource(&mcp.Resource{Name: "greeting", URI: "peer://" + id + "/greeting"}, read(func(string) string {
		return "Good morning"
	}))
	server.AddResource(&mcp.Resource{Name: "watched", URI: watched}, read(func(string) string {
		return fmt.Sprintf("touched %d times", touched.Load())
	}))
	server.AddResourceTemplate(&mcp.ResourceTemplate{Name: "users", URITemplate: "peer://" + id + "/users/{name}"}, read(func(uri string) string {
		return "the user " + uri[strings.LastIndex(uri, "/")+1:]
	}))
	server.AddPrompt(&mcp.Prompt{Name: "greet", Arguments: []*mcp.PromptArgument{{Name: "language", Required: true}}}, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		said := &mcp.TextContent{Text: "Greet me in " + req.Params.Arguments["language"]}
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: said}}}, nil
	})
	return server
}

func main() {
	id, transport := os.Args[1], os.Args[2]
	server := peer(id)
	if transport == "stdio" {
		if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			log.Print(err)
		}
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	get := func(*http.Request) *mcp.Server { return server }
	path, handler := "/mcp", http.Handler(mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: transport == "http"}))
	if transport == "sse" {
		path, handler = "/sse", mcp.NewSSEHandler(get, nil)
	}
	fmt.Printf("{\"url\":\"http://%s%s\"}\n", listener.Addr(), path)
	log.Fatal(http.Serve(listener, handler))
}
