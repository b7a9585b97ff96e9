module github.com/a2ad/a2ad/sdk/go

go 1.25.0
