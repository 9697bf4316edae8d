// validatorUrl: without it the page would ask a server of somebody else whether the description is valid
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#docs",
  validatorUrl: null,
  deepLinking: true,
  persistAuthorization: false,
});
