process SPINIMPUTE_LIGATE {
    tag "${meta.id}"
    label 'process_low'

    conda "${moduleDir}/environment.yml"
    container "spinimpute:0.1.0"

    input:
    tuple val(meta), path(chunks), path(indexes)

    output:
    tuple val(meta), path("${prefix}.vcf.gz"), path("${prefix}.vcf.gz.tbi"), emit: vcf_index
    tuple val("${task.process}"), val('spinimpute'), eval("spinimpute --version | sed 's/spinimpute //'"), emit: versions_spinimpute, topic: versions

    when:
    task.ext.when == null || task.ext.when

    script:
    def args = task.ext.args ?: ''
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    spinimpute ligate \\
        --threads ${task.cpus} \\
        ${args} \\
        --quiet \\
        --out ${prefix}.vcf.gz \\
        ${chunks}
    """

    stub:
    prefix = task.ext.prefix ?: "${meta.id}"
    """
    echo '' | gzip > ${prefix}.vcf.gz
    touch ${prefix}.vcf.gz.tbi
    """
}
